"""The Huber quantile loss: slow loops, the answers of rlax and sb3-contrib, fixtures, and where it converges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from replay_helpers import oracle
from rl_training.algorithms.common.quantiles import quantile_loss_mean, quantile_loss_summed, quantile_midpoints
from slow_formulas import slow_quantile_loss

LOSSES = {"sum": quantile_loss_summed, "mean": quantile_loss_mean}


def random_rows(rows: int, quantiles: int, targets: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    shapes = (rows, quantiles), (rows, targets)
    estimates, samples = (torch.from_numpy(2 * rng.standard_normal(shape)) for shape in shapes)
    return estimates, samples, torch.from_numpy(rng.uniform(0.01, 0.99, (rows, quantiles)))


def test_fractions_are_the_midpoints_of_equal_parts() -> None:
    assert quantile_midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]


@pytest.mark.parametrize("reduction", LOSSES)
@pytest.mark.parametrize("own_taus", [False, True])
def test_losses_equal_the_slow_double_loop(reduction: str, own_taus: bool) -> None:
    quantiles, targets, taus = random_rows(6, 5, 3)
    found = LOSSES[reduction](quantiles, targets, taus if own_taus else taus[0])
    for b in range(6):
        row = taus[b] if own_taus else taus[0]
        slow = slow_quantile_loss(quantiles[b].tolist(), targets[b].tolist(), row.tolist())
        assert found[b].item() == pytest.approx(slow if reduction == "sum" else slow / 5, rel=1e-12)


@pytest.mark.parametrize("reduction", LOSSES)
def test_gradients_equal_finite_differences(reduction: str) -> None:
    quantiles, targets, taus = random_rows(3, 4, 2, seed=1)
    assert torch.autograd.gradcheck(lambda q: LOSSES[reduction](q, targets, taus), (quantiles.requires_grad_(),))


@pytest.mark.parametrize("case", oracle("quantile_loss")["cases"], ids=lambda case: case["source"])
def test_losses_and_gradients_equal_independent_implementations(case: dict[str, Any]) -> None:
    inputs = {
        name: torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("quantiles", "targets", "taus")
    }
    quantiles = inputs["quantiles"].requires_grad_()
    loss = LOSSES[case["inputs"]["reduction"]](quantiles, inputs["targets"], inputs["taus"]).mean()
    assert loss.item() == pytest.approx(case["outputs"]["loss"], rel=1e-6)
    gradient = torch.autograd.grad(loss, quantiles)[0]
    np.testing.assert_allclose(gradient.numpy(), case["outputs"]["gradient"], atol=1e-7)


def test_published_fixtures() -> None:
    loss = quantile_loss_summed(torch.tensor([0.0, 1.0]), torch.tensor([2.0, -2.0]), torch.tensor([0.25, 0.75]))
    assert loss.item() == pytest.approx(1.25)
    # Two critics of TQC on the four smallest atoms of the target, after a reward and an entropy bonus.
    critics, targets = torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), torch.tensor([1.45, 2.35, 3.25, 4.15])
    taus = quantile_midpoints(3)
    assert quantile_loss_mean(critics, targets, taus).mean().item() == pytest.approx(0.5963368, abs=1e-6)
    assert quantile_loss_summed(critics, targets, taus).mean().item() == pytest.approx(1.78901, abs=1e-5)


def test_one_batch_of_targets_serves_several_critics() -> None:
    quantiles, targets, taus = random_rows(4, 5, 3)
    both = torch.stack([quantiles, quantiles + 1])
    found = quantile_loss_mean(both, targets, taus[0])
    assert found.shape == (2, 4)
    torch.testing.assert_close(found[1], quantile_loss_mean(quantiles + 1, targets, taus[0]))


def test_a_coin_becomes_low_quantiles_first() -> None:
    """Targets of -1 and +1: the lower half of the fractions goes to -1 and the upper half to +1, not the reverse."""
    quantiles, taus = torch.zeros(4, requires_grad=True), quantile_midpoints(4)
    for _ in range(400):
        loss = quantile_loss_summed(quantiles, torch.tensor([-1.0, 1.0]), taus)
        quantiles.data.sub_(0.1 * torch.autograd.grad(loss, quantiles)[0])
    # The Huber loss is an expectile within 1 of a target, so inner fractions stay off the coin's two sides.
    assert (quantiles.diff() > 0.2).all()
    assert quantiles[0] < -0.7 and quantiles[-1] > 0.7
    torch.testing.assert_close(quantiles, -quantiles.flip(0), rtol=0, atol=1e-3)
