"""D4PG: the model, the distributional critic, the actor's gradient and whole updates, against slow formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

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
from rl_training.algorithms import d4pg as d4pg_module
from rl_training.algorithms.d4pg import d4pg_actor_loss, d4pg_loss
from rl_training.data.transitions import Transitions
from rl_training.models import MLPD4PGModel
from slow_formulas import slow_projection

SUPPORT = {"num_atoms": 7, "support_low": -6.0, "support_high": 9.0}


# --- model -------------------------------------------------------------------------------------------------------


def test_model_has_every_helper_with_its_shape() -> None:
    model = make_learner("d4pg", BOX, **SUPPORT).model
    assert isinstance(model, MLPD4PGModel)
    batch = make_batch(BOX, 5, 0)
    actions = model.actor(batch.obs)
    assert actions.shape == (5, 2) and actions.abs().max() < 1
    np.testing.assert_allclose(model.act(batch.obs.numpy()), actions.detach().numpy(), atol=1e-6)
    logits = model.distribution_logits(batch.obs, actions)
    assert logits.shape == (5, 7)
    means = [sum(p * z for p, z in zip(row.softmax(0), model.support, strict=True)).item() for row in logits]
    np.testing.assert_allclose(model.q_values(batch.obs, actions).detach().numpy(), means, atol=1e-5)
    assert torch.equal(model.support, torch.linspace(-6.0, 9.0, 7))
    atoms = model.target_support(batch.rewards, batch.discounts)
    assert atoms.shape == (5, 7)
    assert atoms[2, 3].item() == pytest.approx((batch.rewards[2] + batch.discounts[2] * model.support[3]).item())


def test_exploratory_samples_are_clipped_and_come_with_the_density_before_clipping() -> None:
    model = make_learner("d4pg", BOX).model
    obs = make_batch(BOX, 4, 0).obs
    noise = torch.tensor([[0.0, 0.0], [0.5, -1.0], [30.0, -30.0], [1.0, 1.0]])
    actions, log_probs = model.sample(obs, noise, 0.3)
    means = model.actor(obs)
    torch.testing.assert_close(actions, (means + 0.3 * noise).clamp(-1, 1))
    assert actions[2].tolist() == [1.0, -1.0]
    normal = torch.distributions.Normal(means, 0.3)
    torch.testing.assert_close(log_probs, normal.log_prob(means + 0.3 * noise).sum(1), rtol=1e-4, atol=1e-4)
    assert log_probs[0].item() == pytest.approx(2 * -math.log(0.3 * math.sqrt(2 * math.pi)), abs=1e-5)


# --- losses ------------------------------------------------------------------------------------------------------


def test_critic_loss_of_a_case_done_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))
    target = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    rows = [-math.log(0.25), -0.5 * math.log(0.2) - 0.5 * math.log(0.6)]
    support = torch.tensor([-1.0, 0.0, 1.0])
    loss, metrics = d4pg_loss(logits, target, support)
    assert loss.item() == pytest.approx(sum(rows) / 2)
    assert set(metrics) == {"critic_loss", "q_value_mean", "target_q_mean"}
    assert metrics["q_value_mean"].item() == pytest.approx((-0.25 + 0.4) / 2)
    assert metrics["target_q_mean"].item() == pytest.approx(0.0)
    weighted, _ = d4pg_loss(logits, target, support, torch.tensor([1.0, 0.5]))
    assert weighted.item() == pytest.approx((rows[0] + 0.5 * rows[1]) / 2)


def test_the_actor_climbs_the_expected_return() -> None:
    """Its gradient is that of E[z] with probabilities, not of the logits weighted by the atoms."""
    model = make_learner("d4pg", BOX, model={"hidden_sizes": (3,)}, **SUPPORT).model
    obs = make_batch(BOX, 5, 0).obs
    logits = model.critic(torch.cat([obs, model.actor(obs)], 1))
    masses = logits.exp()
    slow = -((masses * model.support).sum(1) / masses.sum(1)).mean()
    ours = d4pg_actor_loss(model, obs)
    assert ours.item() == pytest.approx(slow.item(), abs=1e-5)
    parameters = list(model.policy_network.parameters())
    for mine, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(slow, parameters), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_actor_gradient_is_right_by_finite_differences() -> None:
    model = make_learner("d4pg", BOX, model={"hidden_sizes": (3,)}, **SUPPORT).model
    obs = make_batch(BOX, 5, 0).obs.double()
    assert actor_gradient_is_exact(model, lambda model: d4pg_actor_loss(model, obs))


# --- the whole update against one written out by hand -----------------------------------------------------------


class ReferenceD4PG:
    """Row by row and atom by atom, with ordinary modules and torch.optim.Adam."""

    def __init__(self, learner: Any, settings: dict[str, Any]):
        self.settings, self.support = settings, learner.model.support.tolist()
        self.actor, self.critic = plain_copy(learner.model.policy_network), plain_copy(learner.model.critic)
        self.target_actor = plain_copy(learner.target.module.policy_network)
        self.target_critic = plain_copy(learner.target.module.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=settings["actor_learning_rate"])
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=settings["critic_learning_rate"])

    def update(self, batch: Transitions) -> list[float]:
        losses, divergences = [], []
        for b in range(len(batch)):
            with torch.no_grad():
                inputs = torch.cat([batch.next_obs[b], self.target_actor(batch.next_obs[b])])
                probabilities = torch.softmax(self.target_critic(inputs), 0).tolist()
            m = slow_projection(batch.rewards[b].item(), batch.discounts[b].item(), probabilities, self.support)
            log_p = torch.log_softmax(self.critic(torch.cat([batch.obs[b], batch.actions[b]])), 0)
            loss = -sum(mass * log_p[i] for i, mass in enumerate(m))
            losses.append(loss * (1.0 if batch.weights is None else batch.weights[b]))
            divergences.append(loss.item() + sum(mass * np.log(mass) for mass in m if mass > 0))
        self._step(self.critic_optimizer, sum(losses) / len(losses))
        values = []
        for obs in batch.obs:
            p = torch.softmax(self.critic(torch.cat([obs, self.actor(obs)])), 0)
            values.append(sum(p[i] * atom for i, atom in enumerate(self.support)))
        self._step(self.actor_optimizer, -sum(values) / len(values))
        soft_update(self.target_actor, self.actor, self.settings["tau"])
        soft_update(self.target_critic, self.critic, self.settings["tau"])
        return divergences

    def _step(self, optimizer: torch.optim.Optimizer, loss: Any) -> None:
        self.actor_optimizer.zero_grad()
        self.critic_optimizer.zero_grad()
        loss.backward()
        if self.settings.get("max_grad_norm"):
            parameters = optimizer.param_groups[0]["params"]
            torch.nn.utils.clip_grad_norm_(parameters, self.settings["max_grad_norm"])
        optimizer.step()


@pytest.mark.parametrize(
    "case",
    [{}, {"n_step": 1}, {"max_grad_norm": 0.05}, {"prioritized": True}],
    ids=lambda case: "+".join(case) or "plain",
)
def test_three_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    settings = {"actor_learning_rate": 2e-3, "critic_learning_rate": 3e-3, "tau": 0.1, **SUPPORT, **case}
    learner = make_learner("d4pg", BOX, **settings)
    disturb(learner.target.module)
    reference = ReferenceD4PG(learner, settings)
    for number in range(3):
        batch = make_batch(BOX, 12, number, weights=case.get("prioritized", False), n_step=case.get("n_step", 5))
        result = learner.update(batch)
        divergences = reference.update(batch)
        assert_same_parameters(learner.model.policy_network, reference.actor)
        assert_same_parameters(learner.model.critic, reference.critic)
        assert_same_parameters(learner.target.module.policy_network, reference.target_actor)
        assert_same_parameters(learner.target.module.critic, reference.target_critic)
        if case.get("prioritized"):
            np.testing.assert_allclose(result.priorities, divergences, atol=1e-5)
        else:
            assert result.priorities is None
    assert learner.updates == 3


def test_metrics_of_an_update_are_named() -> None:
    result = make_learner("d4pg", BOX).update(make_batch(BOX, 8, 0))
    expected = {"critic_loss", "actor_loss", "target_q_mean", "q_value_mean", "support_clipped"}
    assert set(result) == expected | {"critic_grad_norm", "actor_grad_norm"}
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_metrics_say_what_was_predicted_aimed_at_and_clipped() -> None:
    learner = make_learner("d4pg", BOX, **SUPPORT)
    disturb(learner.target.module)
    batch, model, target = make_batch(BOX, 40, 0), learner.model, learner.target.module
    with torch.no_grad():
        predicted = model.q_values(batch.obs, batch.actions).mean().item()
        mass = target.distribution_logits(batch.next_obs, target.actor(batch.next_obs)).softmax(1)
        atoms = model.target_support(batch.rewards, batch.discounts)
    outside = (atoms < -6.025) | (atoms > 9.025)  # a hundredth of the spacing of 2.5 is let pass
    metrics = learner.update(batch)
    assert metrics["q_value_mean"].item() == pytest.approx(predicted, abs=1e-4)
    assert metrics["target_q_mean"].item() == pytest.approx((mass * atoms.clamp(-6, 9)).sum(1).mean().item(), abs=1e-4)
    clipped = (mass * outside).sum(1).mean().item()
    assert metrics["support_clipped"].item() == pytest.approx(clipped, abs=1e-4) and 0.01 < clipped < 0.9


def test_the_actor_step_changes_no_critic_and_the_critic_step_no_actor() -> None:
    for still, moving in (("actor", "critic"), ("critic", "actor")):
        learner = make_learner("d4pg", BOX, **{f"{still}_learning_rate": 0.0, f"{moving}_learning_rate": 1e-2})
        parts = {"actor": learner.model.policy_network, "critic": learner.model.critic}
        before = {name: snapshot(part) for name, part in parts.items()}
        for number in range(2):
            learner.update(make_batch(BOX, 8, number))
        torch.testing.assert_close(snapshot(parts[still]), before[still], rtol=0, atol=0)
        assert not torch.equal(snapshot(parts[moving]), before[moving])


def test_learning_rates_follow_their_schedules() -> None:
    schedules = {f"{part}_learning_rate": {"start": 1e-2, "end": 0.0, "over": 10} for part in ("actor", "critic")}
    learner = make_learner("d4pg", BOX, **schedules)
    before = snapshot(learner.model)
    for env_steps, moves in ((10, False), (9, True)):
        learner.clock.env_steps = env_steps
        learner.update(make_batch(BOX, 8, 0))
        assert torch.equal(snapshot(learner.model), before) != moves


def test_no_gradient_reaches_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(logits: Tensor, target: Tensor, *others: Any) -> Any:
        seen.append(target)
        return d4pg_loss(logits, target, *others)

    monkeypatch.setattr(d4pg_module, "d4pg_loss", spy)
    learner = make_learner("d4pg", BOX, tau=0.5)
    learner.update(make_batch(BOX, 8, 0))
    assert len(seen) == 1 and seen[0].shape == (8, 51) and not seen[0].requires_grad
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())


def test_fresh_targets_equal_their_networks_and_share_no_storage() -> None:
    learner = make_learner("d4pg", BOX)
    torch.testing.assert_close(snapshot(learner.target.module), snapshot(learner.model), rtol=0, atol=0)
    storages = {p.untyped_storage().data_ptr() for p in learner.model.parameters()}
    assert storages.isdisjoint(p.untyped_storage().data_ptr() for p in learner.target.module.parameters())


def test_exploring_draws_from_its_own_stream_and_learning_from_none() -> None:
    learner = make_learner("d4pg", BOX)
    obs = np.zeros((2, 3), np.float32)
    learner.act(obs, explore=False)
    learner.update(make_batch(BOX, 4, 0))
    assert set(learner.streams.state_dict()["generators"]) == set()
    learner.act(obs, explore=True)
    assert set(learner.streams.state_dict()["generators"]) == {"exploration"}


def test_exploration_noise_has_its_deviation_and_stays_within_bounds() -> None:
    learner = make_learner("d4pg", BOX, exploration_noise=0.2)
    obs = np.zeros((4000, 3), np.float32)
    still, noisy = (learner.act(obs, explore=explore).actions for explore in (False, True))
    assert (noisy - still).std() == pytest.approx(0.2, rel=0.05)
    assert np.abs(noisy).max() <= 1.0


def test_a_support_that_pendulum_does_not_fit_is_seen() -> None:
    """Five steps of about -8 each, from states worth about -200: most of that is cut off at -100."""
    batch = make_batch(BOX, 64, 0)
    batch.rewards, batch.discounts = torch.full((64,), -40.0), torch.full((64,), 0.98**5)
    fitting = make_learner("d4pg", BOX, support_low=-814.0, support_high=0.0)
    metrics = {name: float(value) for name, value in fitting.update(batch).items()}
    assert metrics["support_clipped"] < 0.01
    narrow = make_learner("d4pg", BOX, support_low=-100.0, support_high=100.0)
    metrics = {name: float(value) for name, value in narrow.update(batch).items()}
    assert metrics["support_clipped"] > 0.1
