"""TD3: smoothed targets, twin critics and the delay, against formulas written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from replay_helpers import (
    BOX,
    actor_gradient_is_exact,
    assert_same_parameters,
    disturb,
    make_batch,
    make_learner,
    plain_copy,
    snapshot,
    soft_update,
)
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.td3 import td3_actor_loss, td3_loss, td3_target
from rl_training.data.transitions import Transitions


class ConstantModel:
    """Twin critics that return 2 and 3 and remember the action they were asked about."""

    def __init__(self, action: float):
        self.action = action

    def actor(self, obs: Tensor) -> Tensor:
        return torch.full((len(obs), 2), self.action)

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        self.asked = actions
        return torch.stack([torch.full((len(obs),), 3.0), torch.full((len(obs),), 2.0)])


def test_target_of_a_case_done_by_hand_and_of_a_terminal_row() -> None:
    batch = make_batch(BOX, 2, 0)
    batch.rewards, batch.discounts = torch.tensor([1.0, 0.7]), torch.tensor([0.9, 0.0])
    model: Any = ConstantModel(0.5)
    target = td3_target(batch, model, torch.zeros(2, 2))
    # The smaller critic counts: 1 + 0.9 * 2.
    torch.testing.assert_close(target, torch.tensor([2.8, 0.7]), rtol=0, atol=1e-6)
    assert target[1].item() == torch.tensor(0.7).item()


def test_the_smoothed_target_action_is_clipped_to_the_bounds() -> None:
    batch = make_batch(BOX, 2, 0)
    model: Any = ConstantModel(0.9)
    td3_target(batch, model, torch.tensor([[0.5, -0.5], [0.05, -2.5]]))
    torch.testing.assert_close(model.asked, torch.tensor([[1.0, 0.4], [0.95, -1.0]]))


def test_loss_sums_both_critics_to_the_same_target() -> None:
    loss, metrics = td3_loss(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), torch.tensor([2.0, 0.0]))
    assert loss.item() == (1 + 9) / 2 + (0 + 4) / 2
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}


def test_the_actor_climbs_the_first_critic_alone() -> None:
    model = make_learner("td3", BOX).model
    obs = make_batch(BOX, 6, 0).obs
    expected = -model.critics[0](torch.cat([obs, model.actor(obs)], 1)).mean()
    torch.testing.assert_close(td3_actor_loss(model, obs), expected)
    with torch.no_grad():
        model.critics[1][-1].bias += 100.0
    torch.testing.assert_close(td3_actor_loss(model, obs), expected)


def test_actor_gradient_is_right_by_finite_differences() -> None:
    model = make_learner("td3", BOX, model={"hidden_sizes": (3,)}).model
    obs = make_batch(BOX, 5, 0).obs.double()
    assert actor_gradient_is_exact(model, lambda model: td3_actor_loss(model, obs))


class ReferenceTD3:
    """Row by row, with ordinary modules and torch.optim.Adam; the noise comes from an equal random stream."""

    def __init__(self, learner: Any, settings: dict[str, Any]):
        self.settings = settings
        self.actor = plain_copy(learner.model.policy_network)
        self.critics = nn.ModuleList([plain_copy(critic) for critic in learner.model.critics])
        self.target_actor = plain_copy(learner.target.module.policy_network)
        self.target_critics = nn.ModuleList([plain_copy(critic) for critic in learner.target.module.critics])
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=settings["actor_learning_rate"])
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=settings["critic_learning_rate"])
        self.stream = Streams(learner.streams.seed)["target_noise"]
        self.updates = 0

    def update(self, batch: Transitions) -> list[float]:
        noise = self.stream.standard_normal(batch.actions.shape, dtype=np.float32)
        losses, errors = [], []
        for b in range(len(batch)):
            weight = 1.0 if batch.weights is None else batch.weights[b]
            limit = self.settings["target_noise_clip"]
            with torch.no_grad():
                smoothing = np.clip(self.settings["target_noise"] * noise[b], -limit, limit)
                action = self.target_actor(batch.next_obs[b]) + torch.from_numpy(smoothing)
                action = torch.tensor([min(1.0, max(-1.0, float(a))) for a in action])
                next_inputs = torch.cat([batch.next_obs[b], action])
                smaller = min(float(critic(next_inputs)) for critic in self.target_critics)
                y = float(batch.rewards[b] + batch.discounts[b] * smaller)
            rows = [critic(torch.cat([batch.obs[b], batch.actions[b]]))[0] - y for critic in self.critics]
            losses.append(weight * (rows[0] ** 2 + rows[1] ** 2))
            errors.append((abs(rows[0].item()) + abs(rows[1].item())) / 2)
        self.critic_optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        if self.settings.get("max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(self.critics.parameters(), self.settings["max_grad_norm"])
        self.critic_optimizer.step()
        self.updates += 1
        if self.updates % self.settings["policy_delay"] == 0:
            values = [self.critics[0](torch.cat([obs, self.actor(obs)]))[0] for obs in batch.obs]
            self.actor_optimizer.zero_grad()
            (-sum(values) / len(values)).backward()
            if self.settings.get("max_grad_norm"):
                torch.nn.utils.clip_grad_norm_(self.actor.parameters(), self.settings["max_grad_norm"])
            self.actor_optimizer.step()
            soft_update(self.target_actor, self.actor, self.settings["tau"])
            soft_update(self.target_critics, self.critics, self.settings["tau"])
        return errors


@pytest.mark.parametrize(
    "case",
    [{}, {"policy_delay": 1}, {"policy_delay": 3}, {"prioritized": True, "n_step": 3}, {"max_grad_norm": 0.05}],
    ids=lambda case: "+".join(f"{key}={value}" for key, value in case.items()) or "plain",
)
def test_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    settings = {
        "tau": 0.1,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 3e-3,
        "policy_delay": 2,
        "target_noise": 0.4,
        "target_noise_clip": 0.3,
    } | case
    learner = make_learner("td3", BOX, **settings)
    disturb(learner.target.module)
    reference = ReferenceTD3(learner, settings)
    for number in range(4):
        weighted = case.get("prioritized", False)
        batch = make_batch(BOX, 16, number, weights=weighted, n_step=case.get("n_step", 1))
        result = learner.update(batch)
        errors = reference.update(batch)
        if weighted:
            np.testing.assert_allclose(result.priorities, errors, atol=1e-5)
        else:
            assert result.priorities is None
        assert_same_parameters(learner.model.policy_network, reference.actor)
        assert_same_parameters(learner.model.critics, reference.critics)
        assert_same_parameters(learner.target.module.policy_network, reference.target_actor)
        assert_same_parameters(learner.target.module.critics, reference.target_critics)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_actor_and_targets_move_only_at_every_delayed_update(delay: int) -> None:
    learner = make_learner("td3", BOX, policy_delay=delay)
    base = {"critic_loss", "q_mean", "target_q_mean", "critic_grad_norm"}
    for number in range(1, 7):
        parts = [learner.model.policy_network, learner.target.module, learner.model.critics]
        before = [snapshot(part) for part in parts]
        result = learner.update(make_batch(BOX, 8, number))
        actor, targets, critics = (not torch.equal(snapshot(p), b) for p, b in zip(parts, before, strict=True))
        due = number % delay == 0
        assert (actor, targets, critics) == (due, due, True)
        assert set(result) == (base | {"actor_grad_norm", "actor_loss"} if due else base)
        assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_the_delay_goes_on_after_a_restore() -> None:
    learner, other = (make_learner("td3", BOX, policy_delay=2) for _ in range(2))
    learner.update(make_batch(BOX, 8, 0))
    other.load_state_dict(learner.state_dict())
    assert "actor_loss" in other.update(make_batch(BOX, 8, 1))


def test_smoothing_noise_has_its_deviation_and_its_clip() -> None:
    batch = make_batch(BOX, 20_000, 0)
    wide = make_learner("td3", BOX, target_noise=0.2, target_noise_clip=10.0)
    noise = wide.step_inputs(batch)[0].numpy()
    assert noise.std() == pytest.approx(0.2, rel=0.02) and abs(noise.mean()) < 0.005
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03
    narrow = make_learner("td3", BOX, target_noise=0.2, target_noise_clip=0.1)
    clipped = narrow.step_inputs(batch)[0].numpy()
    assert np.abs(clipped).max() == pytest.approx(0.1)
    assert np.mean(np.abs(clipped) > 0.0999) == pytest.approx(0.617, abs=0.01)  # P(|z| > 0.5)
    again = narrow.step_inputs(batch)[0].numpy()
    assert not np.array_equal(clipped, again)


def test_target_actions_of_an_update_are_smoothed_and_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("td3", BOX, target_noise=1.0, target_noise_clip=0.5)
    with torch.no_grad():
        learner.target.module.policy_network[-2].bias += 1.0  # near the bound: the clip has work to do
    asked: list[Tensor] = []
    original = learner.target.module.q_values

    def spy(obs: Tensor, actions: Tensor) -> Tensor:
        asked.append(actions)
        return original(obs, actions)

    monkeypatch.setattr(learner.target.module, "q_values", spy)
    batch = make_batch(BOX, 500, 0)
    centre = learner.target.module.actor(batch.next_obs)
    learner.update(batch)
    (actions,) = asked
    assert actions.abs().max() == 1.0
    away = (actions - centre).abs()
    assert away.max() <= 0.5 + 1e-6
    assert away.mean() > 0.1
