"""Critic regression: every critic to one target, weighted, without a gradient into the target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rl_training.algorithms.common.critics import critic_loss, td_errors


def random_case(critics: int, size: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(critics)
    q_values = torch.randn(critics, size, generator=generator, dtype=torch.float64)
    target = torch.randn(size, generator=generator, dtype=torch.float64)
    weights = torch.rand(size, generator=generator, dtype=torch.float64)
    return q_values, target, weights


def test_loss_of_a_case_done_by_hand() -> None:
    q_values = torch.tensor([[1.0, 2.0], [0.0, 5.0]])
    target = torch.tensor([3.0, 1.0])
    # Critic one: (4 + 1) / 2; critic two: (9 + 16) / 2.
    assert critic_loss(q_values, target)[0].item() == 15.0
    # With weights: (.5 * 4 + 1) / 2 and (.5 * 9 + 16) / 2.
    assert critic_loss(q_values, target, torch.tensor([0.5, 1.0]))[0].item() == 11.75


@pytest.mark.parametrize("critics", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradient_equal_the_slow_formula(critics: int, weighted: bool) -> None:
    q_values, target, weights = random_case(critics)
    size = len(target)
    slow, slow_gradient = 0.0, np.zeros((critics, size))
    for i in range(critics):
        for b in range(size):
            weight = float(weights[b]) if weighted else 1.0
            error = float(q_values[i, b] - target[b])
            slow += weight * error**2 / size
            slow_gradient[i, b] = 2 * weight * error / size
    q_values.requires_grad_()
    loss, _ = critic_loss(q_values, target, weights if weighted else None)
    loss.backward()
    assert loss.item() == pytest.approx(slow, rel=1e-12)
    assert q_values.grad is not None
    np.testing.assert_allclose(q_values.grad.numpy(), slow_gradient, rtol=1e-12)


def test_without_weights_it_is_the_sum_of_mean_squared_errors() -> None:
    q_values, target, _ = random_case(2)
    expected = F.mse_loss(q_values[0], target) + F.mse_loss(q_values[1], target)
    torch.testing.assert_close(critic_loss(q_values, target)[0], expected)


def test_gradient_is_right_by_finite_differences() -> None:
    q_values, target, weights = random_case(2)
    q_values.requires_grad_()
    assert torch.autograd.gradcheck(lambda q: critic_loss(q, target, weights)[0], (q_values,))


def test_metrics_are_named_and_carry_no_gradient() -> None:
    q_values, target, weights = random_case(2)
    loss, metrics = critic_loss(q_values.requires_grad_(), target, weights)
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}
    assert not any(value.requires_grad for value in metrics.values())
    assert metrics["critic_loss"].item() == loss.item()
    assert metrics["q_mean"].item() == pytest.approx(q_values.detach().numpy().mean())
    assert metrics["target_q_mean"].item() == pytest.approx(target.numpy().mean())


def test_priorities_are_the_absolute_errors_averaged_over_critics() -> None:
    q_values = torch.tensor([[1.0, 2.0, 0.0], [5.0, 2.0, -3.0]], requires_grad=True)
    errors = td_errors(q_values, torch.tensor([3.0, 1.0, 0.0]))
    assert not errors.requires_grad
    # Errors of opposite sign must not cancel: row one has -2 and +2.
    assert errors.tolist() == [2.0, 1.0, 1.5]
