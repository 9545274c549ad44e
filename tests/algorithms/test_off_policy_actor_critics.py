"""What the actor-critics of replay share: separate steps, schedules, weights, targets and observation statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from replay_helpers import BOX, disturb, make_batch, make_learner, snapshot
from rl_training.algorithms import ddpg as ddpg_module
from rl_training.algorithms import sac as sac_module
from rl_training.algorithms import td3 as td3_module
from rl_training.experiment.registry import get_config_class

MODULES: dict[str, Any] = {"ddpg": ddpg_module, "td3": td3_module, "sac": sac_module}
EVERY_ACTOR_CRITIC = pytest.mark.parametrize("algo", MODULES)
NEWER_TOO = pytest.mark.parametrize("algo", [*MODULES, "td7", "crossq", "tqc", "redq", "droq"])


def learner_of(algo: str, **settings: Any) -> Any:
    """A learner whose actor learns at least in every second update."""
    delay = get_config_class(algo).model_fields.get("policy_delay")
    if delay is not None and delay.default > 2:
        settings["policy_delay"] = 1
    return make_learner(algo, BOX, **settings)


@NEWER_TOO
def test_the_actor_step_changes_no_critic_and_the_critic_step_no_actor(algo: str) -> None:
    """With one learning rate at zero, only the other's networks may move."""
    for still, moving in (("actor", "critic"), ("critic", "actor")):
        rates = {f"{still}_learning_rate": 0.0, f"{moving}_learning_rate": 1e-2}
        learner = learner_of(algo, **rates)
        parts = {"actor": learner.model.policy_network, "critic": learner.model.critics}
        before = {name: snapshot(part) for name, part in parts.items()}
        for number in range(2):
            learner.update(make_batch(BOX, 8, number))
        torch.testing.assert_close(snapshot(parts[still]), before[still], rtol=0, atol=0)
        assert not torch.equal(snapshot(parts[moving]), before[moving])


@NEWER_TOO
def test_learning_rates_follow_their_schedules(algo: str) -> None:
    schedules = {f"{part}_learning_rate": {"start": 1e-2, "end": 0.0, "over": 10} for part in ("actor", "critic")}
    learner = learner_of(algo, **schedules)
    parts = (learner.model.policy_network, learner.model.critics)
    before = [snapshot(part) for part in parts]
    for env_steps, moves in ((10, False), (9, True)):
        learner.clock.env_steps = env_steps
        for number in range(2):
            learner.update(make_batch(BOX, 8, number))
        assert [not torch.equal(snapshot(p), b) for p, b in zip(parts, before, strict=True)] == [moves, moves]


@NEWER_TOO
def test_importance_weights_reach_the_loss_of_the_critics(algo: str) -> None:
    """Rows of weight 0 count for nothing: another reward there changes no loss, and elsewhere it does."""
    losses = []
    for rows in (slice(0, 0), slice(4, 8), slice(0, 4)):
        batch = make_batch(BOX, 8, 0, weights=True)
        batch.weights = torch.tensor([1.0, 0.5, 1.0, 0.25, 0.0, 0.0, 0.0, 0.0])
        batch.rewards[rows] += 10.0
        losses.append(learner_of(algo, prioritized=True).update(batch)["critic_loss"].item())
    assert losses[0] == losses[1] != losses[2]


@NEWER_TOO
def test_no_metric_keeps_a_graph(algo: str) -> None:
    """Targets are constants, and what a run logs must not keep their graphs in memory."""
    result = learner_of(algo).update(make_batch(BOX, 8, 0))
    assert result["target_q_mean"].grad_fn is None
    assert not any(value.requires_grad for value in result.values())


@pytest.mark.parametrize("algo", ["sac", "tqc", "redq"])
def test_the_actor_climbs_the_critics_as_they_are_after_their_step(algo: str) -> None:
    """Autograd does not notice a step: a loss from before it would mix weights of before and after."""
    settings = {"critic_learning_rate": 0.05, "actor_learning_rate": 0.0, "temperature": 0.2}
    learner, twin = (learner_of(algo, **settings) for _ in range(2))
    batch = make_batch(BOX, 16, 0)
    noise = twin.step_inputs(batch)[1]
    found = learner.update(batch)["actor_loss"].item()
    with torch.no_grad():
        actions, log_probs = learner.model.sample(batch.obs, noise)
        q_values = learner.model.q_values(batch.obs, actions)
        value = q_values.amin(0) if algo == "sac" else q_values.mean(0)
    assert found == pytest.approx((0.2 * log_probs - value).mean().item(), abs=1e-5)


@pytest.mark.parametrize("algo", ["ddpg", "sac", "tqc", "redq", "droq"])
def test_targets_follow_by_tau_after_every_update(algo: str) -> None:
    """Also in the updates in which an actor does not learn; towards the weights after the step, not before it."""
    learner = make_learner(algo, BOX, tau=0.25, critic_learning_rate=0.05)
    disturb(learner.target.module)
    for number in range(3):
        before = snapshot(learner.target.module)
        learner.update(make_batch(BOX, 8, number))
        expected = 0.75 * before + 0.25 * snapshot(learner.model)
        torch.testing.assert_close(snapshot(learner.target.module), expected, rtol=0, atol=1e-6)


@EVERY_ACTOR_CRITIC
def test_no_gradient_reaches_a_target(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = MODULES[algo]
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


@EVERY_ACTOR_CRITIC
def test_fresh_targets_equal_their_networks_and_share_no_storage(algo: str) -> None:
    learner = make_learner(algo, BOX)
    torch.testing.assert_close(snapshot(learner.target.module), snapshot(learner.model), rtol=0, atol=0)
    storages = {p.untyped_storage().data_ptr() for p in learner.model.parameters()}
    assert storages.isdisjoint(p.untyped_storage().data_ptr() for p in learner.target.module.parameters())


@EVERY_ACTOR_CRITIC
def test_observations_given_to_observe_reach_the_statistics(algo: str) -> None:
    learner = make_learner(algo, BOX, model={"normalize_observations": True})
    obs = 5 + 2 * np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    learner.observe(obs)
    np.testing.assert_allclose(learner.model.normalizer.mean, obs.mean(0), rtol=1e-5)
    assert learner.model.normalizer.count == 40
    make_learner(algo, BOX).observe(obs)
