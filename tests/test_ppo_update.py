"""PPO's whole update: against stable-baselines3's numbers, and every known way to get it wrong."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from on_policy_helpers import (
    SPACES,
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
from rl_training.algorithms import ppo
from rl_training.algorithms.common.on_policy import PolicyBatch, policy_batch

SMALL = {"minibatch_size": 8, "update_epochs": 3}


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_six_epochs_give_the_weights_of_stable_baselines3(kind: str) -> None:
    [(inputs, outputs)] = [c for c in oracle_cases("on_policy_update", "PPO") if c[0]["action_kind"] == kind]
    assert outputs["clip_fraction"] > 0.1
    learner = learner_of_case(inputs, minibatch_size=16, update_epochs=inputs["update_epochs"])
    rollout = rollout_of_case(inputs)
    settings = {"gamma": inputs["gamma"], "gae_lambda": inputs["gae_lambda"]}
    batch = policy_batch(rollout, learner.model, **settings)
    np.testing.assert_allclose(batch.advantages.reshape(rollout.rewards.shape), outputs["advantages"], atol=1e-5)
    metrics = learner.update(rollout)
    assert float(metrics["clip_fraction"]) == pytest.approx(outputs["clip_fraction"], abs=1e-6)
    for name, parameter in learner.model.named_parameters():
        np.testing.assert_allclose(parameter.detach(), outputs["parameters"][name], atol=2e-5, err_msg=name)


def watched_losses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every call of the loss during an update: its inputs and its metrics, copied."""
    calls: list[Any] = []
    original = ppo.ppo_loss

    def loss(log_probs: Tensor, entropy: Tensor, values: Tensor, batch: PolicyBatch, config: Any, **rest: Any) -> Any:
        answer = original(log_probs, entropy, values, batch, config, **rest)
        copied = PolicyBatch(*(getattr(batch, f.name).clone() for f in fields(batch)))
        calls.append(SimpleNamespace(log_probs=log_probs.detach().clone(), batch=copied, metrics=answer[1], **rest))
        return answer

    monkeypatch.setattr(ppo, "ppo_loss", loss)
    return calls


@pytest.mark.parametrize("normalize_observations", [False, True])
@pytest.mark.parametrize("kind", SPACES)
def test_ratio_is_one_on_the_first_minibatch_of_every_update(
    kind: str, normalize_observations: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watched_losses(monkeypatch)
    learner = make_learner("ppo", kind, model={"normalize_observations": normalize_observations}, **SMALL)
    for seed in range(3):
        rollout = make_rollout(learner, 16, seed)
        calls.clear()
        learn_from(learner, rollout)
        ratio = (calls[0].log_probs - calls[0].batch.log_probs).exp()
        assert float((ratio - 1).abs().max()) < 1e-5
        assert float((calls[-1].log_probs - calls[-1].batch.log_probs).abs().max()) > 1e-5


@pytest.mark.parametrize("next_step_resets", [False, True])
def test_epochs_see_every_valid_row_once_with_constant_targets(
    next_step_resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watched_losses(monkeypatch)
    learner = make_learner("ppo", gamma=0.9, gae_lambda=0.8, **SMALL)
    rollout = make_rollout(learner, 16, 1, next_step_resets=next_step_resets)
    advantages = slow_advantages(rollout, rollout.rewards, value_of(learner.model), 0.9, 0.8)[rollout.valid]
    learner.update(rollout)
    valid = int(rollout.valid.sum())
    pieces = round(valid / 8)
    assert len(calls) == 3 * pieces
    orders = []
    for epoch in range(3):
        batches = [call.batch for call in calls[epoch * pieces : (epoch + 1) * pieces]]
        rows = {name: torch.cat([getattr(b, name) for b in batches]) for name in ("obs", "log_probs", "advantages")}
        assert len(rows["obs"]) == valid
        place = [np.flatnonzero((rollout.obs[rollout.valid] == obs.numpy()).all(1)).item() for obs in rows["obs"]]
        assert sorted(place) == list(range(valid))
        orders.append(place)
        np.testing.assert_array_equal(rows["log_probs"], rollout.extras["log_probs"][rollout.valid][place])
        np.testing.assert_allclose(rows["advantages"], advantages[place], atol=1e-5)
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("kind", SPACES)
def test_early_stop_really_stops(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = watched_losses(monkeypatch)
    learner = make_learner("ppo", kind, learning_rate=0.03, target_kl=0.02, minibatch_size=8, update_epochs=50)
    steps = []
    original = learner.optimizer.step
    learner.optimizer.step = lambda loss: steps.append(1) or original(loss)
    result = learner.update(make_rollout(learner, 16, 1))
    moved = [float(call.metrics["approx_kl"]) > 0.02 for call in calls]
    assert moved == [False] * (len(calls) - 1) + [True]
    assert len(steps) == len(calls) - 1 < 50 * 4
    assert learner.updates == 1
    assert float(result["approx_kl"]) <= 0.02


def test_without_a_target_all_epochs_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = watched_losses(monkeypatch)
    learner = make_learner("ppo", learning_rate=0.1, minibatch_size=8, update_epochs=7)
    learner.update(make_rollout(learner, 16, 1))
    assert len(calls) == 7 * 4
    assert max(float(call.metrics["approx_kl"]) for call in calls) > 0.1


def test_schedules_reach_the_loss_and_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = watched_losses(monkeypatch)
    learner = make_learner(
        "ppo",
        learning_rate={"start": 0.01, "end": 0.0},
        clip_range={"start": 0.2, "end": 0.1},
        entropy_coef={"start": 0.4, "end": 0.0, "over": 500},
        **SMALL,
    )
    learner.clock.env_steps = 250
    result = learner.update(make_rollout(learner, 16, 1))
    assert float(result["learning_rate"]) == pytest.approx(0.0075)
    assert float(learner.optimizer.learning_rate) == pytest.approx(0.0075)
    for call in calls:
        assert (call.clip_range, call.entropy_coef) == pytest.approx((0.175, 0.2))


def test_learning_rate_of_the_last_update_is_small_but_not_zero(tmp_path: Any) -> None:
    """Annealed by env steps, not by minibatches: with n updates the last one has lr0 / n."""
    from rl_training.config.loading import load_config
    from rl_training.runtime.workflows import train

    settings = {"num_steps": 20, "minibatch_size": 10, "update_epochs": 2}
    settings["learning_rate"] = {"start": 0.01, "end": 0.0}
    config = {"algo": "ppo", "env_id": "Pendulum-v1", "num_envs": 2, "total_timesteps": 400, "log_every": 1}
    result = train(load_config(config | {"output_dir": str(tmp_path), "eval_episodes": 1, "algo_kwargs": settings}))
    lines = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    assert rates[0] == pytest.approx(0.01)
    assert 0 < rates[-1] <= 0.01 / 10 * (1 + 1e-6)
    assert sorted(rates, reverse=True) == rates


def test_advantages_are_normalized_per_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float]] = []
    original = ppo.ppo_policy_loss

    def policy_loss(log_probs: Tensor, old: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
        seen.append((float(advantages.mean()), float(advantages.std())))
        return original(log_probs, old, advantages, clip_range)

    monkeypatch.setattr(ppo, "ppo_policy_loss", policy_loss)
    for normalized in (True, False):
        seen.clear()
        learner = make_learner("ppo", normalize_advantages=normalized, **SMALL)
        learner.update(make_rollout(learner, 16, 1))
        standard = [math.isclose(m, 0, abs_tol=1e-6) and math.isclose(s, 1, abs_tol=1e-5) for m, s in seen]
        assert standard == [normalized] * len(seen)


def test_minibatches_of_one_row_stay_finite() -> None:
    learner = make_learner("ppo", minibatch_size=1, update_epochs=2)
    result = learner.update(make_rollout(learner, 4, 1))
    assert torch.isfinite(parameters_of(learner.model)).all()
    assert all(math.isfinite(float(result[name])) for name in ("loss", "grad_norm", "approx_kl"))


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete"])
def test_a_huge_entropy_coefficient_makes_the_policy_uniform(kind: str) -> None:
    learner = make_learner("ppo", kind, entropy_coef=100.0, learning_rate=0.02, minibatch_size=32, update_epochs=20)
    with torch.no_grad():
        learner.model.actor[-1].bias.copy_(torch.linspace(-2.0, 2.0, len(learner.model.actor[-1].bias)))
    rollout = make_rollout(learner, 16, 1)
    most = sum(math.log(n) for n in SPACES[kind].action_sizes)
    first = learner.update(rollout)["entropy"]
    for seed in range(2, 8):
        last = learner.update(make_rollout(learner, 16, seed))["entropy"]
    assert float(last) > 0.99 * most > float(first)


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_policy_moves_towards_rewarded_actions(kind: str) -> None:
    """A bandit: one action (or direction) pays, values cannot help."""
    learner = make_learner("ppo", kind, learning_rate=0.01, minibatch_size=32, update_epochs=4)
    obs = np.zeros((1, 3), np.float32)
    before = learner.model.policy_numpy(obs)[0]
    for seed in range(10):
        rollout = make_rollout(learner, 32, seed)
        rollout.obs[:] = 0
        rollout.extras["log_probs"][:] = 0
        chosen = [learner.act(row, explore=True) for row in rollout.obs]
        rollout.actions[:] = [action.actions for action in chosen]
        rollout.extras["log_probs"][:] = [action.extras["log_probs"] for action in chosen]
        rollout.terminated[:], rollout.truncated[:] = True, False
        rollout.final_steps = rollout.final_envs = np.zeros(0, np.int64)
        rollout.final_obs = np.zeros((0, 3), np.float32)
        rollout.rewards[:] = rollout.actions == 2 if kind == "discrete" else rollout.actions[..., 0]
        learner.update(rollout)
    after = learner.model.policy_numpy(obs)[0]
    assert after[2] - after.mean() > 0.2 if kind == "discrete" else after[0] > before[0] + 0.2


@pytest.mark.parametrize("max_grad_norm", [1e-3, None])
def test_gradient_is_clipped_by_its_global_norm(max_grad_norm: float | None) -> None:
    """With an infinite second moment out of the way, Adam's first moment after one step is 0.1 of the gradient."""
    learner = make_learner("ppo", minibatch_size=32, update_epochs=1, max_grad_norm=max_grad_norm)
    norm = float(learner.update(make_rollout(learner, 16, 1))["grad_norm"])
    used = float(torch.linalg.vector_norm(learner.optimizer.first_moment)) / 0.1
    assert norm > 1e-2
    assert used == pytest.approx(norm if max_grad_norm is None else max_grad_norm, rel=2e-3)
    assert max_grad_norm is None or used <= max_grad_norm + 1e-6


def test_invalid_rows_do_not_change_an_update() -> None:
    answers = []
    for noise in (0.0, 1.0):
        learner = make_learner("ppo", normalize_rewards=True, model={"normalize_observations": True}, **SMALL)
        for seed in (1, 2):
            rollout = make_rollout(learner, 16, seed, next_step_resets=True)
            rows = ~rollout.valid
            assert rows.any()
            rollout.obs[rows] += noise
            rollout.rewards[rows] += noise
            rollout.extras["log_probs"][rows] -= noise
            learn_from(learner, rollout)
        answers.append(parameters_of(learner.model))
    assert torch.equal(*answers)


def test_reward_options_reach_the_advantages() -> None:
    """Rewards twice as large with half the scale are the same problem; clipping and normalising are not."""

    def update(factor: float, **settings: Any) -> Tensor:
        learner = make_learner("ppo", **SMALL, **settings)
        rollout = make_rollout(learner, 16, 1)
        rollout.rewards *= factor
        learn_from(learner, rollout)
        return parameters_of(learner.model)

    plain = update(1.0)
    assert torch.equal(update(2.0, reward_scale=0.5), plain)
    assert not torch.equal(update(1.0, reward_clip=0.5), plain)
    torch.testing.assert_close(update(3.0, normalize_rewards=True), update(1.0, normalize_rewards=True))
    assert not torch.allclose(update(1.0, normalize_rewards=True), plain)


def test_update_reports_its_metrics() -> None:
    learner = make_learner("ppo", gamma=0.9, gae_lambda=0.8, **SMALL)
    rollout = make_rollout(learner, 16, 1)
    batch = policy_batch(rollout, learner.model, gamma=0.9, gae_lambda=0.8)
    result = learner.update(rollout)
    names = {"loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
    assert set(result) == names | {"explained_variance", "target_std", "entropy_share", "learning_rate"}
    assert float(result["target_std"]) == pytest.approx(float(np.std(batch.returns.numpy())), rel=1e-5)
    expected = 1 - np.var((batch.returns - batch.values).numpy()) / np.var(batch.returns.numpy())
    assert float(result["explained_variance"]) == pytest.approx(float(expected), abs=1e-5)
    assert learner.updates == 1 and result.priorities is None


def test_a_restored_learner_continues_exactly() -> None:
    settings: dict[str, Any] = {"normalize_rewards": True, "model": {"normalize_observations": True}, **SMALL}
    first, second = make_learner("ppo", **settings), make_learner("ppo", **settings)
    learn_from(first, make_rollout(first, 16, 1))
    second.load_state_dict(first.state_dict())
    for learner in (first, second):
        learn_from(learner, make_rollout(learner, 16, 2))
    assert torch.equal(parameters_of(first.model), parameters_of(second.model))
    assert first.updates == second.updates == 2
