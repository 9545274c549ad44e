"""A2C: its loss against rlax and a slow formula; its whole update against stable-baselines3's numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from on_policy_helpers import (
    SPACES,
    batch_from,
    learn_from,
    learner_of_case,
    make_learner,
    make_rollout,
    oracle_cases,
    parameters_of,
    rollout_of_case,
    slow_advantages,
    value_of,
)
from rl_training.algorithms import a2c
from rl_training.algorithms.a2c import a2c_loss
from rl_training.algorithms.common.on_policy import PolicyBatch
from rl_training.config.algorithms.a2c import A2CConfig


def test_loss_and_gradients_equal_rlax() -> None:
    [(inputs, outputs)] = oracle_cases("policy_gradient")
    logits = torch.from_numpy(inputs["logits"]).requires_grad_()
    log_softmax = logits.log_softmax(-1)
    log_probs = log_softmax.gather(1, torch.from_numpy(inputs["actions"])[:, None]).squeeze(1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    zeros = torch.zeros(7, dtype=torch.float64)
    batch = batch_from(advantages=inputs["advantages"])
    loss, metrics = a2c_loss(log_probs, entropy, zeros, batch, A2CConfig(), entropy_coef=0.3)
    loss.backward()
    assert float(metrics["policy_loss"]) == pytest.approx(float(outputs["policy_loss"]), abs=1e-10)
    assert float(metrics["entropy"]) == pytest.approx(float(outputs["mean_entropy"]), abs=1e-10)
    expected = outputs["policy_gradient"] - 0.3 * outputs["entropy_gradient"]
    np.testing.assert_allclose(logits.grad, expected, atol=1e-10)


def random_loss_inputs(seed: int, size: int = 9) -> tuple[list[Tensor], PolicyBatch]:
    rng = np.random.default_rng(seed)
    columns = {name: rng.standard_normal(size) for name in ("log_probs", "values", "advantages", "returns")}
    inputs = (torch.from_numpy(rng.standard_normal(size)).requires_grad_() for _ in range(3))
    return list(inputs), batch_from(**columns)


@pytest.mark.parametrize("normalized", [False, True])
def test_whole_loss_equals_a_slow_loop(normalized: bool) -> None:
    (log_probs, entropy, values), batch = random_loss_inputs(0)
    config = A2CConfig(value_coef=0.7, normalize_advantages=normalized)
    loss, metrics = a2c_loss(log_probs, entropy, values, batch, config, entropy_coef=0.03)
    advantages = batch.advantages.tolist()
    if normalized:
        mean = sum(advantages) / 9
        deviation = math.sqrt(sum((a - mean) ** 2 for a in advantages) / 8)
        advantages = [(a - mean) / (deviation + 1e-8) for a in advantages]
    policy = -sum(float(p) * a for p, a in zip(log_probs.detach(), advantages, strict=True)) / 9
    value = 0.5 * sum(float(v - r) ** 2 for v, r in zip(values.detach(), batch.returns, strict=True)) / 9
    mean_entropy = float(entropy.detach().mean())
    expected = {
        "loss": policy + 0.7 * value - 0.03 * mean_entropy,
        "policy_loss": policy,
        "value_loss": value,
        "entropy": mean_entropy,
    }
    assert float(loss.detach()) == pytest.approx(expected["loss"], abs=1e-10)
    assert {name: float(metric) for name, metric in metrics.items()} == pytest.approx(expected, abs=1e-10)
    assert not any(metric.requires_grad for metric in metrics.values())


def test_loss_gradients_are_right() -> None:
    inputs, batch = random_loss_inputs(1)
    config = A2CConfig(normalize_advantages=True)
    assert torch.autograd.gradcheck(lambda *x: a2c_loss(*x, batch, config, entropy_coef=0.1)[0], inputs)


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_one_update_gives_the_weights_of_stable_baselines3(kind: str) -> None:
    [(inputs, outputs)] = [c for c in oracle_cases("on_policy_update", "A2C") if c[0]["action_kind"] == kind]
    learner = learner_of_case(inputs)
    learner.update(rollout_of_case(inputs))
    for name, parameter in learner.model.named_parameters():
        np.testing.assert_allclose(parameter.detach(), outputs["parameters"][name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("next_step_resets", [False, True])
def test_one_update_takes_one_step_on_all_valid_rows(next_step_resets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PolicyBatch] = []
    original = a2c.a2c_loss

    def loss(log_probs: Tensor, entropy: Tensor, values: Tensor, batch: PolicyBatch, *rest: Any, **more: Any) -> Any:
        seen.append(batch)
        return original(log_probs, entropy, values, batch, *rest, **more)

    monkeypatch.setattr(a2c, "a2c_loss", loss)
    learner = make_learner("a2c", gamma=0.9, gae_lambda=1.0)
    rollout = make_rollout(learner, 8, 1, next_step_resets=next_step_resets)
    expected = slow_advantages(rollout, rollout.rewards, value_of(learner.model), 0.9, 1.0)[rollout.valid]
    result = learner.update(rollout)
    assert len(seen) == 1 and learner.updates == 1
    np.testing.assert_allclose(seen[0].advantages, expected, atol=1e-5)
    np.testing.assert_array_equal(seen[0].obs, rollout.obs[rollout.valid])
    assert not any(column.requires_grad for column in (seen[0].advantages, seen[0].returns, seen[0].values))
    names = {"loss", "policy_loss", "value_loss", "entropy", "grad_norm", "explained_variance", "learning_rate"}
    names |= {"target_std", "entropy_share"}
    assert set(result) == names
    variance = 1 - np.var(expected) / np.var((seen[0].returns).numpy())
    assert float(result["explained_variance"]) == pytest.approx(float(variance), abs=1e-5)


def test_the_advantage_moves_the_policy_only() -> None:
    """The value head must not learn to flatter the policy: without a value loss it stays where it is."""
    learner = make_learner("a2c", value_coef=0.0)
    before = parameters_of(learner.model.critic)
    learner.update(make_rollout(learner, 8, 1))
    assert torch.equal(parameters_of(learner.model.critic), before)


@pytest.mark.parametrize("max_grad_norm", [1e-3, None])
def test_gradient_is_clipped_by_its_global_norm(max_grad_norm: float | None) -> None:
    learner = make_learner("a2c", max_grad_norm=max_grad_norm, optimizer="adam")
    norm = float(learner.update(make_rollout(learner, 8, 1))["grad_norm"])
    used = float(torch.linalg.vector_norm(learner.optimizer.first_moment)) / 0.1
    assert norm > 1e-2
    assert used == pytest.approx(norm if max_grad_norm is None else max_grad_norm, rel=2e-3)


def test_schedules_are_read_at_the_current_step() -> None:
    learner = make_learner("a2c", learning_rate={"start": 0.01, "end": 0.0}, entropy_coef={"start": 0.4, "end": 0.0})
    learner.clock.env_steps = 750
    result = learner.update(make_rollout(learner, 8, 1))
    assert float(result["learning_rate"]) == pytest.approx(0.0025)
    assert float(learner.optimizer.learning_rate) == pytest.approx(0.0025)
    parts = result["policy_loss"] + 0.5 * result["value_loss"] - 0.1 * result["entropy"]
    torch.testing.assert_close(result["loss"], parts)


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete"])
def test_a_huge_entropy_coefficient_makes_the_policy_uniform(kind: str) -> None:
    learner = make_learner("a2c", kind, entropy_coef=100.0, learning_rate=0.05, max_grad_norm=1.0)
    with torch.no_grad():
        learner.model.actor[-1].bias.copy_(torch.arange(float(len(learner.model.actor[-1].bias))))
    most = sum(math.log(n) for n in SPACES[kind].action_sizes)
    first = learner.update(make_rollout(learner, 8, 0))["entropy"]
    for seed in range(1, 120):
        last = learner.update(make_rollout(learner, 8, seed))["entropy"]
    assert float(last) > 0.99 * most > float(first)


def test_a_rollout_of_one_row_stays_finite() -> None:
    learner = make_learner("a2c", num_envs=1, normalize_advantages=True)
    learner.update(make_rollout(learner, 1, 1))
    assert torch.isfinite(parameters_of(learner.model)).all()


def test_rewards_are_shaped_before_learning() -> None:
    def update(factor: float, **settings: Any) -> Tensor:
        learner = make_learner("a2c", **settings)
        rollout = make_rollout(learner, 8, 1)
        rollout.rewards *= factor
        learn_from(learner, rollout)
        return parameters_of(learner.model)

    plain = update(1.0)
    assert torch.equal(update(2.0, reward_scale=0.5), plain)
    torch.testing.assert_close(update(3.0, normalize_rewards=True), update(1.0, normalize_rewards=True))
    assert not torch.allclose(update(1.0, normalize_rewards=True), plain)


def test_a_restored_learner_continues_exactly() -> None:
    settings: dict[str, Any] = {"normalize_rewards": True, "model": {"normalize_observations": True}}
    first, second = make_learner("a2c", **settings), make_learner("a2c", **settings)
    learn_from(first, make_rollout(first, 8, 1))
    second.load_state_dict(first.state_dict())
    for learner in (first, second):
        learn_from(learner, make_rollout(learner, 8, 2))
    assert torch.equal(parameters_of(first.model), parameters_of(second.model))
