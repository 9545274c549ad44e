"""SAC: soft targets, reparameterised actor and temperature against formulas written out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.distributions.transforms import TanhTransform

from replay_helpers import (
    BOX,
    actor_gradient_is_exact,
    assert_same_parameters,
    disturb,
    make_batch,
    make_learner,
    oracle,
    plain_copy,
    snapshot,
    soft_update,
)
from rl_training.algorithms.common.soft_actor_critic import temperature_loss
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.sac import sac_actor_loss, sac_loss, sac_target
from rl_training.data.transitions import Transitions
from rl_training.models.distributions import squashed_gaussian


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- targets and losses ----------------------------------------------------------------------------------------


def test_target_of_the_published_fixture_and_of_a_terminal_row() -> None:
    batch = make_batch(BOX, 2, 0)
    batch.rewards, batch.discounts = double(1.0, 1.0), double(0.9, 0.0)
    next_q = torch.stack([double(2.0, 2e30), double(3.0, 3e30)])
    target = sac_target(batch, next_q, double(-1.0, -1e30), torch.tensor(0.5))
    assert target[0].item() == pytest.approx(3.25)
    assert target[1].item() == 1.0


def test_targets_and_actor_loss_equal_the_slow_formula() -> None:
    rng = np.random.default_rng(2)
    rewards, discounts, log_probs = rng.standard_normal(9), rng.choice([0, 0.9, 0.81], 9), rng.standard_normal(9)
    q, alpha = rng.standard_normal((2, 9)), 0.3
    batch = make_batch(BOX, 9, 0)
    batch.rewards, batch.discounts = torch.from_numpy(rewards), torch.from_numpy(discounts)
    slow_targets, slow_loss = [], 0.0
    for b in range(9):
        smaller = q[0][b] if q[0][b] < q[1][b] else q[1][b]
        slow_targets.append(rewards[b] + discounts[b] * (smaller - alpha * log_probs[b]))
        slow_loss += (alpha * log_probs[b] - smaller) / 9
    tensors = torch.from_numpy(q), torch.from_numpy(log_probs), torch.tensor(alpha, dtype=torch.float64)
    np.testing.assert_allclose(sac_target(batch, *tensors).numpy(), slow_targets, rtol=1e-12)
    assert sac_actor_loss(*tensors).item() == pytest.approx(slow_loss, rel=1e-12)


def test_critic_loss_sums_both_critics_to_the_same_target() -> None:
    loss, metrics = sac_loss(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), torch.tensor([2.0, 0.0]))
    assert loss.item() == (1 + 9) / 2 + (0 + 4) / 2
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}


def test_temperature_loss_and_its_gradient_by_hand() -> None:
    log_alpha = double(math.log(0.2)).requires_grad_()
    log_probs = double(0.5, -1.5, 3.0).requires_grad_()
    loss = temperature_loss(log_alpha, log_probs, -2.0).sum()
    assert loss.item() == pytest.approx(-math.log(0.2) * (2.0 / 3 - 2.0))
    loss.backward()
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(2.0 - 2.0 / 3)
    assert log_probs.grad is None  # the temperature is tuned to the policy, never the policy to it


def test_gradients_are_right_by_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    log_probs = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    log_alpha = double(-0.7).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, p: sac_actor_loss(q, p, double(0.4)), (q, log_probs))
    assert torch.autograd.gradcheck(lambda a: temperature_loss(a, log_probs.detach(), -1.0), (log_alpha,))


def test_the_reparameterised_actor_gradient_is_right_by_finite_differences() -> None:
    noise = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    obs = make_batch(BOX, 4, 0).obs.double()

    def loss(model: Any) -> Tensor:
        actions, log_probs = model.sample(obs, noise)
        return sac_actor_loss(model.q_values(obs, actions), log_probs, double(0.3))

    assert actor_gradient_is_exact(make_learner("sac", BOX, model={"hidden_sizes": (3,)}).model, loss)


# --- the squashed Gaussian --------------------------------------------------------------------------------------


def test_log_prob_of_the_published_fixture_and_of_independent_implementations() -> None:
    mean, pre_tanh, std = double(0.3, -1.0), double(0.7, 3.0), double(0.5, 2.0)
    _, log_prob = squashed_gaussian(mean[None], std.log()[None], ((pre_tanh - mean) / std)[None])
    assert log_prob.item() == pytest.approx(0.9153204014632, abs=1e-12)
    for case in oracle("tanh_gaussian")["cases"]:
        inputs = [torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("mean", "log_std", "noise")]
        actions, log_probs = squashed_gaussian(*inputs)
        np.testing.assert_allclose(actions.numpy(), case["outputs"]["actions"], rtol=1e-10)
        np.testing.assert_allclose(log_probs.numpy(), case["outputs"]["log_probs"], rtol=1e-8)


@pytest.mark.parametrize("mean", [-20.0, 20.0])
def test_a_saturated_policy_keeps_every_number_finite(mean: float) -> None:
    learner = make_learner("sac", BOX)
    with torch.no_grad():
        learner.model.policy_network[-1].bias[:2] = mean
    for number in range(3):
        result = learner.update(make_batch(BOX, 16, number))
        assert all(torch.isfinite(value) for value in result.values())
    for part in (learner.model, learner.target.module, learner.temperature):
        assert torch.isfinite(snapshot(part)).all()
    assert np.abs(learner.act(make_batch(BOX, 16, 0).obs.numpy(), explore=True).actions).max() <= 1.0


# --- the whole update against one written out by hand -----------------------------------------------------------


class ReferenceSAC:
    """Row by row, with ordinary modules, torch.optim.Adam and torch.distributions."""

    def __init__(self, learner: Any, settings: dict[str, Any]):
        self.settings = settings
        self.actor = plain_copy(learner.model.policy_network)
        self.critics = nn.ModuleList([plain_copy(critic) for critic in learner.model.critics])
        self.target_critics = nn.ModuleList([plain_copy(critic) for critic in learner.target.module.critics])
        self.automatic = settings["temperature"] == "auto"
        alpha = settings["initial_temperature"] if self.automatic else settings["temperature"]
        self.log_alpha = torch.tensor(math.log(alpha), requires_grad=True)
        self.optimizers = {
            name: torch.optim.Adam(parameters, lr=settings[f"{name}_learning_rate"])
            for name, parameters in (
                ("actor", list(self.actor.parameters())),
                ("critic", list(self.critics.parameters())),
                ("temperature", [self.log_alpha]),
            )
        }
        self.stream = Streams(learner.streams.seed)["policy_noise"]

    def sample(self, obs: Tensor, noise: np.ndarray) -> tuple[Tensor, Tensor]:
        outputs = self.actor(obs)
        normal = Normal(outputs[:2], outputs[2:].clamp(-20, 2).exp())
        pre_tanh = normal.loc + normal.scale * torch.from_numpy(noise)
        action = torch.tanh(pre_tanh)
        correction = TanhTransform().log_abs_det_jacobian(pre_tanh, action)
        return action, (normal.log_prob(pre_tanh) - correction).sum()

    def step(self, name: str, loss: Any) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        loss.backward()
        limit = self.settings.get("max_grad_norm")
        if limit is not None and name != "temperature":
            torch.nn.utils.clip_grad_norm_(self.optimizers[name].param_groups[0]["params"], limit)
        self.optimizers[name].step()

    def update(self, batch: Transitions) -> list[float]:
        size, alpha = len(batch), self.log_alpha.detach().exp()
        next_noise = self.stream.standard_normal(batch.actions.shape, dtype=np.float32)
        noise = self.stream.standard_normal(batch.actions.shape, dtype=np.float32)
        losses, errors = [], []
        for b in range(size):
            with torch.no_grad():
                next_action, next_log_prob = self.sample(batch.next_obs[b], next_noise[b])
                next_inputs = torch.cat([batch.next_obs[b], next_action])
                smaller = min(critic(next_inputs)[0] for critic in self.target_critics)
                y = batch.rewards[b] + batch.discounts[b] * (smaller - alpha * next_log_prob)
            rows = [critic(torch.cat([batch.obs[b], batch.actions[b]]))[0] - y for critic in self.critics]
            losses.append((rows[0] ** 2 + rows[1] ** 2) * (1.0 if batch.weights is None else batch.weights[b]))
            errors.append((abs(rows[0].item()) + abs(rows[1].item())) / 2)
        self.step("critic", sum(losses) / size)
        losses, log_probs = [], []
        for b in range(size):
            action, log_prob = self.sample(batch.obs[b], noise[b])
            smaller = min(critic(torch.cat([batch.obs[b], action]))[0] for critic in self.critics)
            losses.append(alpha * log_prob - smaller)
            log_probs.append(log_prob.item())
        self.step("actor", sum(losses) / size)
        if self.automatic:
            entropy_gap = -sum(log_probs) / size - self.settings["target_entropy"]
            self.step("temperature", self.log_alpha * entropy_gap)
        soft_update(self.target_critics, self.critics, self.settings["tau"])
        return errors


@pytest.mark.parametrize(
    "case",
    [{}, {"temperature": 0.3}, {"target_entropy": 1.5}, {"prioritized": True, "n_step": 3}, {"max_grad_norm": 0.05}],
    ids=lambda case: "+".join(case) or "plain",
)
def test_three_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    settings = {
        "tau": 0.1,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 3e-3,
        "temperature_learning_rate": 1e-2,
        "temperature": "auto",
        "initial_temperature": 0.5,
    } | case
    learner = make_learner("sac", BOX, **settings)
    disturb(learner.target.module)
    # The automatic target is minus the number of action dimensions.
    reference = ReferenceSAC(learner, {"target_entropy": -2.0} | settings)
    for number in range(3):
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
        assert_same_parameters(learner.target.module.critics, reference.target_critics)
        assert learner.temperature.log.item() == pytest.approx(reference.log_alpha.item(), abs=1e-6)
    assert learner.updates == 3


def test_metrics_of_an_update_are_named() -> None:
    base = {"critic_loss", "q_mean", "target_q_mean", "critic_grad_norm"}
    base |= {"actor_grad_norm", "actor_loss", "entropy", "temperature"}
    for temperature, extra in (("auto", {"temperature_loss"}), (0.2, set())):
        result = make_learner("sac", BOX, temperature=temperature).update(make_batch(BOX, 8, 0))
        assert set(result) == base | extra
        assert all(torch.isfinite(v) and v.shape == () and not v.requires_grad for v in result.values())


def test_the_entropy_metric_is_the_mean_of_minus_log_pi() -> None:
    learner = make_learner("sac", BOX)
    batch = make_batch(BOX, 64, 0)
    stream = Streams(0)["policy_noise"]
    stream.standard_normal((64, 2), dtype=np.float32)
    noise = torch.from_numpy(stream.standard_normal((64, 2), dtype=np.float32))
    expected = -learner.model.sample(batch.obs, noise)[1].mean()
    torch.testing.assert_close(learner.update(batch)["entropy"], expected.detach())


# --- temperature ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "rises"), [(5.0, True), (-5.0, False)])
def test_the_temperature_rises_while_entropy_is_below_its_target(gap: float, rises: bool) -> None:
    entropy = make_learner("sac", BOX).update(make_batch(BOX, 64, 0))["entropy"].item()
    learner = make_learner("sac", BOX, target_entropy=entropy + gap, temperature_learning_rate=1e-2)
    before = learner.temperature.value().item()
    learner.update(make_batch(BOX, 64, 0))
    assert (learner.temperature.value().item() > before) == rises


def test_the_automatic_target_entropy_is_minus_the_action_dimensions() -> None:
    assert make_learner("sac", BOX).target_entropy == -2.0
    assert make_learner("sac", BOX, target_entropy=0.5).target_entropy == 0.5


def test_the_temperature_starts_where_it_should_and_stays_when_it_is_fixed() -> None:
    learned = make_learner("sac", BOX, initial_temperature=0.25)
    assert learned.update(make_batch(BOX, 8, 0))["temperature"].item() == pytest.approx(0.25)
    fixed = make_learner("sac", BOX, temperature=0.7)
    for number in range(3):
        assert fixed.update(make_batch(BOX, 8, number))["temperature"].item() == pytest.approx(0.7)


def test_the_temperature_has_a_learning_rate_of_its_own() -> None:
    learner = make_learner("sac", BOX, temperature_learning_rate={"start": 1e-2, "end": 0.0, "over": 10})
    for env_steps, moves in ((10, False), (5, True)):
        learner.clock.env_steps = env_steps
        before = learner.temperature.value().item()
        learner.update(make_batch(BOX, 8, 0))
        assert (learner.temperature.value().item() != before) == moves


def test_the_targets_of_an_update_use_the_current_policy_and_the_target_critics() -> None:
    """The target's own copy of the policy must not matter, the online critics neither."""
    outcomes = []
    for moved in (None, "target_policy", "target_critic"):
        learner = make_learner("sac", BOX, critic_learning_rate=0.0, actor_learning_rate=0.0)
        with torch.no_grad():
            if moved == "target_policy":
                learner.target.module.policy_network[-1].bias += 1.0
            elif moved == "target_critic":
                for critic in learner.target.module.critics:
                    critic[-1].bias += 1.0
        outcomes.append(learner.update(make_batch(BOX, 32, 0))["target_q_mean"].item())
    discount = make_batch(BOX, 32, 0).discounts.mean().item()
    assert outcomes[1] == outcomes[0]
    assert outcomes[2] == pytest.approx(outcomes[0] + discount, abs=1e-5)


def test_fresh_noise_is_drawn_for_the_target_and_for_the_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("sac", BOX)
    drawn: list[Tensor] = []
    original = learner.model.sample

    def spy(obs: Tensor, noise: Tensor) -> Any:
        drawn.append(noise)
        return original(obs, noise)

    monkeypatch.setattr(learner.model, "sample", spy)
    learner.update(make_batch(BOX, 2000, 0))
    first, second = drawn
    assert first.shape == (2000, 2) and not torch.equal(first, second)
    for noise in drawn:
        assert noise.std().item() == pytest.approx(1.0, abs=0.05) and abs(noise.mean().item()) < 0.05
