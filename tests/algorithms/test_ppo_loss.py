"""PPO's loss against fixtures, rlax and slow formulas. For the whole update see test_ppo_update.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from on_policy_helpers import batch_from, oracle_cases
from rl_training.algorithms.common.on_policy import PolicyBatch
from rl_training.algorithms.ppo import ppo_loss, ppo_policy_loss, ppo_value_loss
from rl_training.config.algorithms.ppo import PPOConfig


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
