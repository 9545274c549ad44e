"""The categorical projection and its loss: a slow double loop, rlax's answers, published fixtures and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from replay_helpers import oracle
from rl_training.algorithms.common.projections import (
    categorical_projection,
    clipped_share,
    cross_entropy,
    kl_divergence,
    make_support,
    project,
)
from slow_formulas import slow_projection

SUPPORT = torch.linspace(-4.0, 4.0, 9, dtype=torch.float64)  # atoms one apart


def random_rows(count: int, atoms: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, discounts of one to three steps or 0, and distributions; many rows reach outside a small support."""
    rng = np.random.default_rng(seed)
    discounts = rng.choice([0.9, 0.81, 0.729, 0.0], count)
    probabilities = torch.from_numpy(2 * rng.standard_normal((count, atoms))).softmax(1)
    return torch.from_numpy(3 * rng.standard_normal(count)), torch.from_numpy(discounts), probabilities


@pytest.mark.parametrize(("low", "high", "atoms"), [(-4.0, 4.0, 9), (0.0, 1.0, 2), (-814.0, 0.0, 51), (-1.0, 7.0, 33)])
def test_projection_equals_the_slow_double_loop_of_the_paper(low: float, high: float, atoms: int) -> None:
    support = torch.linspace(low, high, atoms, dtype=torch.float64)
    rewards, discounts, probabilities = random_rows(40, atoms, seed=atoms)
    ours = categorical_projection(rewards, discounts, probabilities, support)
    for b in range(40):
        row = (rewards[b].item(), discounts[b].item(), probabilities[b].tolist())
        np.testing.assert_allclose(ours[b].numpy(), slow_projection(*row, support.tolist()), atol=1e-12)


def test_projection_equals_an_independent_implementation() -> None:
    for case in oracle("categorical_projection")["cases"]:
        inputs = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["inputs"].items()}
        ours = categorical_projection(**inputs)
        np.testing.assert_allclose(ours.numpy(), case["outputs"]["projected"], atol=1e-10)


@pytest.mark.parametrize(
    ("atoms", "probabilities", "support", "expected"),
    [
        ([0, 2, 4, 6, 8], [0.1, 0.6, 0.1, 0.1, 0.1], [4, 5, 6, 7, 8], [0.8, 0.0, 0.1, 0.0, 0.1]),
        ([1, 3, 4, 5, 6], [0.1, 0.2, 0.5, 0.1, 0.1], [4, 5, 6, 7, 8], [0.8, 0.1, 0.1, 0.0, 0.0]),
        ([0, 2, 4, 6, 8], [0.1, 0.2, 0.2, 0.2, 0.3], [0, 4, 8, 12, 16], [0.2, 0.4, 0.4, 0.0, 0.0]),
    ],
)
def test_published_fixtures(
    atoms: list[float], probabilities: list[float], support: list[float], expected: list[float]
) -> None:
    """Dopamine's: atoms anywhere onto a support elsewhere."""
    rows = (torch.tensor([values], dtype=torch.float64) for values in (atoms, probabilities))
    ours = project(*rows, torch.tensor(support, dtype=torch.float64))
    np.testing.assert_allclose(ours[0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (1.5, [0.0, 0.5, 0.5, 0.0, 0.0]),
        (3.0, [0.0, 0.0, 0.0, 1.0, 0.0]),
        (0.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
        (4.0, [0.0, 0.0, 0.0, 0.0, 1.0]),
        (9.0, [0.0, 0.0, 0.0, 0.0, 1.0]),
        (-9.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_a_terminal_transition_puts_all_mass_at_the_reward(reward: float, expected: list[float]) -> None:
    probabilities = torch.tensor([[0.1, 0.2, 0.3, 0.3, 0.1]])
    ours = categorical_projection(torch.tensor([reward]), torch.zeros(1), probabilities, torch.arange(5.0))
    np.testing.assert_allclose(ours[0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mass_is_one_and_nowhere_negative(dtype: torch.dtype) -> None:
    support = make_support(-1.5, 2.5, 23).to(dtype)
    rewards, discounts, probabilities = (part.to(dtype) for part in random_rows(500, 23, seed=1))
    projected = categorical_projection(rewards, discounts, probabilities, support)
    assert projected.dtype == dtype and projected.shape == (500, 23)
    assert clipped_share(rewards, discounts, probabilities, support) > 0.3
    torch.testing.assert_close(projected.sum(1), torch.ones(500, dtype=dtype), rtol=0, atol=1e-5)
    assert projected.min() >= -1e-6


def test_the_mean_is_kept_where_nothing_is_clipped() -> None:
    support = torch.linspace(-40.0, 40.0, 17, dtype=torch.float64)
    rewards, discounts, probabilities = random_rows(200, 17, seed=2)
    discounts = discounts * 0.5
    assert clipped_share(rewards, discounts, probabilities, support) == 0.0
    mean = categorical_projection(rewards, discounts, probabilities, support) @ support
    torch.testing.assert_close(mean, rewards + discounts * (probabilities @ support), rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [-2, 0, 1, 3])
def test_values_on_an_atom_stay_on_it(steps: int) -> None:
    """An undiscounted reward of whole spacings moves mass from atom to atom and splits none."""
    probabilities = torch.zeros(1, 9, dtype=torch.float64)
    probabilities[0, 3:6] = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    projected = categorical_projection(steps * one, one, probabilities, SUPPORT)
    torch.testing.assert_close(projected, probabilities.roll(steps, 1), rtol=0, atol=1e-15)


def test_each_row_uses_its_own_discount() -> None:
    """gamma^n of its n steps, not one gamma for all: atom 4 of [0, 4] goes to 4 gamma^n."""
    support = torch.linspace(0.0, 4.0, 401, dtype=torch.float64)
    probabilities = torch.zeros(3, 401, dtype=torch.float64)
    probabilities[:, -1] = 1.0
    discounts = torch.tensor([0.9, 0.9**3, 0.9**5], dtype=torch.float64)
    mean = categorical_projection(torch.zeros(3, dtype=torch.float64), discounts, probabilities, support) @ support
    torch.testing.assert_close(mean, 4 * discounts)


def test_rows_do_not_mix() -> None:
    rewards, discounts, probabilities = random_rows(30, 9, seed=3)
    together = categorical_projection(rewards, discounts, probabilities, SUPPORT)
    alone = [
        categorical_projection(rewards[b : b + 1], discounts[b : b + 1], probabilities[b : b + 1], SUPPORT)
        for b in range(30)
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=0)


# --- what is clipped ---------------------------------------------------------------------------------------------


def test_clipped_share_is_the_mass_beyond_either_edge() -> None:
    probabilities = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 1.0]])
    support = torch.tensor([0.0, 1.0, 2.0, 3.0])
    rewards, discounts = torch.tensor([1.5, -10.0, 2.5]), torch.tensor([1.0, 1.0, 0.0])
    # Row 0: atoms 2 and 3 go over; row 1: all are below; row 2 is terminal, with a reward inside.
    torch.testing.assert_close(clipped_share(rewards, discounts, probabilities, support), torch.tensor(1.7 / 3))


@pytest.mark.parametrize(("reward", "gamma"), [(1.0, 0.99), (-16.2736044, 0.98), (0.3, 0.97)])
def test_a_support_that_just_holds_every_return_clips_nothing_in_float32(reward: float, gamma: float) -> None:
    bounds = sorted((0.0, reward / (1 - gamma)))
    support = make_support(*bounds, 51)
    probabilities = torch.full((2, 51), 1 / 51)
    rewards, discounts = torch.tensor([reward, 0.0]), torch.full((2,), gamma)
    assert clipped_share(rewards, discounts, probabilities, support) == 0.0


# --- loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_equals_the_slow_formula_and_finite_differences(weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.randn(6, 5, generator=generator, dtype=torch.float64).softmax(1)
    target[0] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    weights = torch.rand(6, generator=generator, dtype=torch.float64) if weighted else None
    slow = 0.0
    for b in range(6):
        masses = [math.exp(value) for value in logits[b].tolist()]
        row = -sum(m * math.log(mass / sum(masses)) for m, mass in zip(target[b].tolist(), masses, strict=True))
        slow += row * (1.0 if weights is None else weights[b].item()) / 6
    assert cross_entropy(logits, target, weights).item() == pytest.approx(slow, rel=1e-12)
    assert torch.autograd.gradcheck(lambda logits: cross_entropy(logits, target, weights), (logits,))


def test_priorities_are_the_divergence_and_finite_where_mass_is_zero() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 5, generator=generator, requires_grad=True)
    target = torch.randn(4, 5, generator=generator).softmax(1)
    target[0] = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0])
    target[3] = logits[3].detach().softmax(0)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(probs=target), torch.distributions.Categorical(logits=logits.detach())
    )
    ours = kl_divergence(target, logits)
    assert not ours.requires_grad and (ours >= 0).all()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
    assert ours[3] < 1e-6 < ours[0]


def test_no_priority_is_negative_where_nothing_is_left_to_learn() -> None:
    """Rounding would make about half of these a hair less than 0, and replay refuses priorities below it."""
    logits = 3 * torch.randn(500, 51, generator=torch.Generator().manual_seed(2))
    divergences = kl_divergence(logits.softmax(1), logits)
    assert divergences.min() >= 0 and divergences.max() < 1e-5


def test_loss_stays_finite_for_masses_that_vanish() -> None:
    """log of a probability that is 0 in float32 must come from the logits."""
    logits = torch.tensor([[0.0, 300.0, 0.0]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([[1.0, 0.0, 0.0]]))
    assert loss.item() == pytest.approx(300.0)
    loss.backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
