"""DDPG: target, losses and updates against formulas written out by hand; actor and critic kept apart."""

from __future__ import annotations

import copy
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
from rl_training.algorithms import ddpg as ddpg_module
from rl_training.algorithms import sac as sac_module
from rl_training.algorithms import td3 as td3_module
from rl_training.algorithms.ddpg import ddpg_actor_loss, ddpg_loss, ddpg_target
from rl_training.data.transitions import Transitions


class ConstantModel:
    """Knows one action and one value; checks that the value is asked for at that action."""

    def __init__(self, action: float, value: float):
        self.action, self.value = action, value

    def actor(self, obs: Tensor) -> Tensor:
        return torch.full((len(obs), 2), self.action)

    def q_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        assert (actions == self.action).all()
        return torch.full((len(obs),), self.value)


def test_target_of_a_case_done_by_hand_and_of_a_terminal_row() -> None:
    batch = make_batch(BOX, 2, 0)
    batch.rewards, batch.discounts = torch.tensor([1.0, 0.7]), torch.tensor([0.9, 0.0])
    model: Any = ConstantModel(0.25, 4.0)
    torch.testing.assert_close(ddpg_target(batch, model), torch.tensor([4.6, 0.7]), rtol=0, atol=1e-6)
    model.value = 1e30
    assert ddpg_target(batch, model)[1].item() == torch.tensor(0.7).item()


def test_critic_loss_is_the_mean_squared_error() -> None:
    loss, metrics = ddpg_loss(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0, 0.0]))
    assert loss.item() == 5.0
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}


def test_actor_gradient_is_right_by_finite_differences() -> None:
    model = make_learner("ddpg", BOX, model={"hidden_sizes": (3,)}).model
    obs = make_batch(BOX, 5, 0).obs.double()
    assert actor_gradient_is_exact(model, lambda model: ddpg_actor_loss(model, obs))


def test_actor_gradient_is_the_deterministic_policy_gradient() -> None:
    """-mean over s of  dQ/da at a = mu(s)  times  dmu/dtheta, with both factors taken by themselves."""
    model = copy.deepcopy(make_learner("ddpg", BOX).model).double()
    obs = make_batch(BOX, 6, 0).obs.double()
    weights = list(model.policy_network.parameters())
    expected = [torch.zeros_like(weight) for weight in weights]
    for row in obs:
        action = model.actor(row[None]).detach().requires_grad_()
        slope = torch.autograd.grad(model.critics[0](torch.cat([row[None], action], 1)).sum(), action)[0][0]
        for dimension in range(2):
            mu = model.actor(row[None])[0, dimension]
            for total, part in zip(expected, torch.autograd.grad(mu, weights), strict=True):
                total -= slope[dimension] * part / len(obs)
    ours = torch.autograd.grad(ddpg_actor_loss(model, obs), weights)
    torch.testing.assert_close(list(ours), expected)


class ReferenceDDPG:
    """Row by row, with ordinary modules and two torch.optim.Adam."""

    def __init__(self, learner: Any, *, tau: float, rates: tuple[float, float], max_grad_norm: float | None):
        self.actor, self.critic = plain_copy(learner.model.policy_network), plain_copy(learner.model.critics[0])
        target = learner.target.module
        self.target_actor, self.target_critic = plain_copy(target.policy_network), plain_copy(target.critics[0])
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=rates[0])
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=rates[1])
        self.tau, self.max_grad_norm = tau, max_grad_norm

    def step(self, optimizer: torch.optim.Adam, network: nn.Module, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(network.parameters(), self.max_grad_norm)
        optimizer.step()

    def update(self, batch: Transitions) -> list[float]:
        losses, errors = [], []
        for b in range(len(batch)):
            with torch.no_grad():
                next_obs = batch.next_obs[b]
                next_q = self.target_critic(torch.cat([next_obs, self.target_actor(next_obs)]))[0]
                y = batch.rewards[b] + batch.discounts[b] * next_q
            error = self.critic(torch.cat([batch.obs[b], batch.actions[b]]))[0] - y
            losses.append(error**2 * (1.0 if batch.weights is None else batch.weights[b]))
            errors.append(abs(error.item()))
        self.step(self.critic_optimizer, self.critic, sum(losses) / len(losses))
        values = [self.critic(torch.cat([obs, self.actor(obs)]))[0] for obs in batch.obs]
        self.step(self.actor_optimizer, self.actor, -sum(values) / len(values))
        soft_update(self.target_actor, self.actor, self.tau)
        soft_update(self.target_critic, self.critic, self.tau)
        return errors


@pytest.mark.parametrize(
    "case",
    [{}, {"prioritized": True}, {"n_step": 3}, {"max_grad_norm": 0.05}, {"tau": 1.0}],
    ids=lambda case: "+".join(case) or "plain",
)
def test_three_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    settings = {"tau": 0.1, "actor_learning_rate": 1e-3, "critic_learning_rate": 3e-3} | case
    learner = make_learner("ddpg", BOX, **settings)
    disturb(learner.target.module)
    reference = ReferenceDDPG(learner, tau=settings["tau"], rates=(1e-3, 3e-3), max_grad_norm=case.get("max_grad_norm"))
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
        assert_same_parameters(learner.model.critics[0], reference.critic)
        assert_same_parameters(learner.target.module.policy_network, reference.target_actor)
        assert_same_parameters(learner.target.module.critics[0], reference.target_critic)
    assert learner.updates == 3


def test_metrics_of_an_update_are_named() -> None:
    result = make_learner("ddpg", BOX).update(make_batch(BOX, 8, 0))
    expected = {"critic_loss", "q_mean", "target_q_mean", "critic_grad_norm", "actor_grad_norm", "actor_loss"}
    assert set(result) == expected
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
def test_the_actor_step_changes_no_critic_and_the_critic_step_no_actor(algo: str) -> None:
    """With one learning rate at zero, only the other's networks may move."""
    for still, moving in (("actor", "critic"), ("critic", "actor")):
        rates = {f"{still}_learning_rate": 0.0, f"{moving}_learning_rate": 1e-2}
        learner = make_learner(algo, BOX, **rates)
        parts = {"actor": learner.model.policy_network, "critic": learner.model.critics}
        before = {name: snapshot(part) for name, part in parts.items()}
        for number in range(2):
            learner.update(make_batch(BOX, 8, number))
        torch.testing.assert_close(snapshot(parts[still]), before[still], rtol=0, atol=0)
        assert not torch.equal(snapshot(parts[moving]), before[moving])


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
def test_learning_rates_follow_their_schedules(algo: str) -> None:
    schedules = {f"{part}_learning_rate": {"start": 1e-2, "end": 0.0, "over": 10} for part in ("actor", "critic")}
    learner = make_learner(algo, BOX, **schedules)
    parts = (learner.model.policy_network, learner.model.critics)
    before = [snapshot(part) for part in parts]
    for env_steps, moves in ((10, False), (9, True)):
        learner.clock.env_steps = env_steps
        for number in range(2):
            learner.update(make_batch(BOX, 8, number))
        assert [not torch.equal(snapshot(p), b) for p, b in zip(parts, before, strict=True)] == [moves, moves]


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
def test_no_gradient_reaches_a_target(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = {"ddpg": ddpg_module, "td3": td3_module, "sac": sac_module}[algo]
    original = getattr(module, f"{algo}_loss")
    seen: list[Tensor] = []

    def spy(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> Any:
        seen.append(target)
        return original(q_values, target, weights)

    monkeypatch.setattr(module, f"{algo}_loss", spy)
    learner = make_learner(algo, BOX)
    learner.update(make_batch(BOX, 8, 0))
    # One target of one value per row, for every critic.
    assert len(seen) == 1 and seen[0].shape == (8,) and not seen[0].requires_grad
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
def test_fresh_targets_equal_their_networks_and_share_no_storage(algo: str) -> None:
    learner = make_learner(algo, BOX)
    torch.testing.assert_close(snapshot(learner.target.module), snapshot(learner.model), rtol=0, atol=0)
    storages = {p.untyped_storage().data_ptr() for p in learner.model.parameters()}
    assert storages.isdisjoint(p.untyped_storage().data_ptr() for p in learner.target.module.parameters())


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
def test_observations_given_to_observe_reach_the_statistics(algo: str) -> None:
    learner = make_learner(algo, BOX, model={"normalize_observations": True})
    obs = 5 + 2 * np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    learner.observe(obs)
    np.testing.assert_allclose(learner.model.normalizer.mean, obs.mean(0), rtol=1e-5)
    assert learner.model.normalizer.count == 40
    make_learner(algo, BOX).observe(obs)
