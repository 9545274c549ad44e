"""PPO: its loss against fixtures, rlax and slow formulas; its whole update against stable-baselines3's numbers."""

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
    batch_from,
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
from rl_training.algorithms.on_policy import PolicyBatch, policy_batch
from rl_training.algorithms.ppo import ppo_loss, ppo_policy_loss, ppo_value_loss
from rl_training.config.ppo import PPOConfig

SMALL = {"minibatch_size": 8, "update_epochs": 3}


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_clipped_surrogate_fixture() -> None:
    loss = ppo_policy_loss(doubles(0.5, 1, 1.5).log(), torch.zeros(3), doubles(-1, 2, 3), 0.2)
    assert float(loss) == pytest.approx(-1.6, abs=1e-12)


def test_clipped_surrogate_and_its_gradient_equal_rlax() -> None:
    for inputs, outputs in oracle_cases("ppo_clip"):
        ratios = torch.from_numpy(np.atleast_1d(inputs["ratios"])).requires_grad_()
        old = torch.full_like(ratios, -0.7)
        loss = ppo_policy_loss(ratios.log() + old, old, torch.from_numpy(inputs["advantages"]), inputs["clip_range"])
        loss.backward()
        assert float(loss.detach()) == pytest.approx(outputs["loss"], abs=1e-10)
        np.testing.assert_allclose(ratios.grad, outputs["gradient_of_ratios"], atol=1e-10)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.3, 1.0, False), (1.3, -1.0, True), (0.7, -1.0, False), (0.7, 1.0, True), (1.1, 1.0, True)],
)
def test_gradient_stops_only_where_the_step_went_far_in_the_good_direction(
    ratio: float, advantage: float, moves: bool
) -> None:
    log_prob = doubles(math.log(ratio)).requires_grad_()
    ppo_policy_loss(log_prob, doubles(0), doubles(advantage), 0.2).backward()
    assert bool(log_prob.grad) is moves  # type: ignore[arg-type]


def test_value_clip_fixture() -> None:
    assert float(ppo_value_loss(doubles(1), doubles(2), doubles(0), 0.2)) == pytest.approx(1.62, abs=1e-12)
    assert float(ppo_value_loss(doubles(1), doubles(2), doubles(0), None)) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("clip_range", [None, 0.3])
def test_value_loss_equals_a_slow_loop(clip_range: float | None) -> None:
    rng = np.random.default_rng(0)
    values, returns, old = rng.standard_normal((3, 20))
    total = 0.0
    for value, target, before in zip(values, returns, old, strict=True):
        error = (value - target) ** 2
        if clip_range is not None:
            near = min(max(value, before - clip_range), before + clip_range)
            error = max(error, (near - target) ** 2)
        total += 0.5 * error / 20
    found = ppo_value_loss(*map(torch.from_numpy, (values, returns, old)), clip_range)
    assert float(found) == pytest.approx(total, abs=1e-12)


def random_loss_inputs(seed: int, size: int = 9) -> tuple[list[Tensor], PolicyBatch]:
    rng = np.random.default_rng(seed)
    columns = {name: rng.standard_normal(size) for name in ("log_probs", "values", "advantages", "returns")}
    current = columns["log_probs"] + 0.3 * rng.standard_normal(size)
    inputs = [current, rng.random(size), rng.standard_normal(size)]
    return [torch.from_numpy(column).requires_grad_() for column in inputs], batch_from(**columns)


@pytest.mark.parametrize("normalized", [False, True])
def test_whole_loss_equals_a_slow_loop(normalized: bool) -> None:
    (log_probs, entropy, values), batch = random_loss_inputs(1)
    config = PPOConfig(value_coef=0.7, value_clip_range=0.4, normalize_advantages=normalized)
    loss, metrics = ppo_loss(log_probs, entropy, values, batch, config, clip_range=0.2, entropy_coef=0.03)
    advantages = batch.advantages.tolist()
    if normalized:
        mean = sum(advantages) / 9
        deviation = math.sqrt(sum((a - mean) ** 2 for a in advantages) / 8)
        advantages = [(a - mean) / (deviation + 1e-8) for a in advantages]
    policy = value = kl = outside = 0.0
    for i, advantage in enumerate(advantages):
        ratio = math.exp(float(log_probs[i].detach()) - float(batch.log_probs[i]))
        policy -= min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage) / 9
        v, old, target = (float(x[i].detach()) for x in (values, batch.values, batch.returns))
        value += 0.5 * max((v - target) ** 2, (min(max(v, old - 0.4), old + 0.4) - target) ** 2) / 9
        kl += (ratio - 1 - math.log(ratio)) / 9
        outside += (abs(ratio - 1) > 0.2) / 9
    mean_entropy = float(entropy.detach().mean())
    expected = {
        "loss": policy + 0.7 * value - 0.03 * mean_entropy,
        "policy_loss": policy,
        "value_loss": value,
        "entropy": mean_entropy,
        "approx_kl": kl,
        "clip_fraction": outside,
    }
    assert float(loss.detach()) == pytest.approx(expected["loss"], abs=1e-10)
    assert {name: float(metric) for name, metric in metrics.items()} == pytest.approx(expected, abs=1e-7)
    assert not any(metric.requires_grad for metric in metrics.values())


@pytest.mark.parametrize("value_clip_range", [None, 0.4])
def test_loss_gradients_are_right(value_clip_range: float | None) -> None:
    inputs, batch = random_loss_inputs(2)
    config = PPOConfig(value_clip_range=value_clip_range)

    def loss(*inputs: Tensor) -> Tensor:
        return ppo_loss(*inputs, batch, config, clip_range=0.2, entropy_coef=0.1)[0]

    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("seed", range(5))
def test_kl_estimate_is_never_negative(seed: int) -> None:
    inputs, batch = random_loss_inputs(seed)
    _, metrics = ppo_loss(*inputs, batch, PPOConfig(), clip_range=0.2, entropy_coef=0.0)
    assert metrics["approx_kl"] >= 0
    batch.log_probs = inputs[0].detach()
    _, metrics = ppo_loss(*inputs, batch, PPOConfig(), clip_range=0.2, entropy_coef=0.0)
    assert metrics["approx_kl"] == 0 and metrics["clip_fraction"] == 0


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_six_epochs_give_the_weights_of_stable_baselines3(kind: str) -> None:
    [(inputs, outputs)] = [c for c in oracle_cases("on_policy_update", "PPO") if c[0]["action_kind"] == kind]
    assert outputs["clip_fraction"] > 0.1
    learner = learner_of_case(inputs, minibatch_size=16, update_epochs=inputs["update_epochs"])
    rollout = rollout_of_case(inputs)
    settings = {"gamma": inputs["gamma"], "gae_lambda": inputs["gae_lambda"]}
    batch = policy_batch(rollout, rollout.rewards, learner.model, **settings)
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
        learner.update(rollout)
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
    learner.env_steps = 250
    result = learner.update(make_rollout(learner, 16, 1))
    assert float(result["learning_rate"]) == pytest.approx(0.0075)
    assert float(learner.optimizer.learning_rate) == pytest.approx(0.0075)
    assert {(call.clip_range, call.entropy_coef) for call in calls} == {(pytest.approx(0.175), pytest.approx(0.2))}


def test_learning_rate_of_the_last_update_is_small_but_not_zero(tmp_path: Any) -> None:
    """Annealed by env steps, not by minibatches: with n updates the last one has lr0 / n."""
    from rl_training.runtime.workflows import train

    settings = {"num_steps": 20, "minibatch_size": 10, "update_epochs": 2}
    settings["learning_rate"] = {"start": 0.01, "end": 0.0}
    config = {"algo": "ppo", "env_id": "CartPole-v1", "num_envs": 2, "total_timesteps": 400, "log_every": 1}
    result = train({**config, "output_dir": str(tmp_path), "eval_episodes": 1, "algo_kwargs": settings})
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
        learner.model.actor[-1].bias.copy_(torch.randn(len(learner.model.actor[-1].bias)) * 2)
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
            learner.update(rollout)
        answers.append(parameters_of(learner.model))
    assert torch.equal(*answers)


def test_reward_options_reach_the_advantages() -> None:
    """Rewards twice as large with half the scale are the same problem; clipping and normalising are not."""

    def update(factor: float, **settings: Any) -> Tensor:
        learner = make_learner("ppo", **SMALL, **settings)
        rollout = make_rollout(learner, 16, 1)
        rollout.rewards *= factor
        learner.update(rollout)
        return parameters_of(learner.model)

    plain = update(1.0)
    assert torch.equal(update(2.0, reward_scale=0.5), plain)
    assert not torch.equal(update(1.0, reward_clip=0.5), plain)
    torch.testing.assert_close(update(3.0, normalize_rewards=True), update(1.0, normalize_rewards=True))
    assert not torch.allclose(update(1.0, normalize_rewards=True), plain)


def test_update_reports_its_metrics() -> None:
    learner = make_learner("ppo", gamma=0.9, gae_lambda=0.8, **SMALL)
    rollout = make_rollout(learner, 16, 1)
    batch = policy_batch(rollout, rollout.rewards, learner.model, gamma=0.9, gae_lambda=0.8)
    result = learner.update(rollout)
    names = {"loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
    assert set(result) == names | {"explained_variance", "learning_rate"}
    expected = 1 - np.var((batch.returns - batch.values).numpy()) / np.var(batch.returns.numpy())
    assert float(result["explained_variance"]) == pytest.approx(float(expected), abs=1e-5)
    assert learner.updates == 1 and result.priorities is None


def test_a_restored_learner_continues_exactly() -> None:
    settings: dict[str, Any] = {"normalize_rewards": True, "model": {"normalize_observations": True}, **SMALL}
    first, second = make_learner("ppo", **settings), make_learner("ppo", **settings)
    first.update(make_rollout(first, 16, 1))
    second.load_state_dict(first.state_dict())
    for learner in (first, second):
        learner.update(make_rollout(learner, 16, 2))
    assert torch.equal(parameters_of(first.model), parameters_of(second.model))
    assert first.updates == second.updates == 2
