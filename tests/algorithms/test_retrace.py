"""Retrace returns against rlax, a literal from the literature and a slow formula along windows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from replay_helpers import oracle
from rl_training.algorithms.common.retrace import retrace_returns


def column(values: object) -> Tensor:
    return torch.from_numpy(np.array(values))[:, None]


@pytest.mark.parametrize("number", range(4))
def test_targets_are_those_of_rlax(number: int) -> None:
    case = oracle("retrace")["cases"][number]
    inputs = {name: np.array(value) for name, value in case["inputs"].items()}
    steps, actions = len(inputs["rewards"]), inputs["actions"]
    taken = (np.arange(steps), actions)
    returns = retrace_returns(
        column(inputs["q"][:-1][taken]),
        column((inputs["policy"] * inputs["q"]).sum(1)),
        column(inputs["policy"][:-1][taken] / inputs["behavior"][:-1][taken]),
        column(inputs["rewards"]),
        column(inputs["discounts"]),
        torch.ones(steps, 1, dtype=torch.bool),
        float(inputs["trace_lambda"]),
    )
    np.testing.assert_allclose(returns[:, 0], case["outputs"]["targets"], atol=1e-10)


def test_the_published_example() -> None:
    """Errors [2.604352, .21525, 4.7] for lambda .9 and gamma .9; rows are q of s_t-1, q of s_t and pi of s_t."""
    q = torch.tensor([[1.0, 2.0], [2.0, 3.0], [0.0, 1.0]]).double()
    next_q = torch.tensor([[2.0, 3.0], [0.0, 1.0], [4.0, 2.0]]).double()
    policy = torch.tensor([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]]).double()
    # Its q of s_t is not that of the next row, so each step is checked as the first of its own trajectory.
    actions, next_actions, behavior = [0, 1, 0], [1, 0, 1], [0.5, 0.8, 0.25]
    rewards, expected = [1.0, 0.0, 2.0], [2.604352, 0.21525, 4.7]
    target = 0.0
    for t in reversed(range(3)):
        value = float((policy[t] * next_q[t]).sum())
        rows = torch.tensor([[float(q[t, actions[t]])], [float(next_q[t, next_actions[t]])]]).double()
        ratio = float(policy[t, next_actions[t]]) / behavior[t]
        last = t == 2
        found = retrace_returns(
            rows,
            torch.tensor([[0.0], [value], [target]]).double(),
            torch.tensor([[1.0], [ratio]]).double(),
            torch.tensor([[rewards[t]], [0.0]]).double(),
            torch.tensor([[0.9], [1.0]]).double(),
            torch.tensor([[True], [not last]]),
            0.9,
        )
        target = float(found[0])
        assert target - float(q[t, actions[t]]) == pytest.approx(expected[t], abs=1e-6)


def slow(
    q: Tensor, values: Tensor, ratios: Tensor, rewards: Tensor, discounts: Tensor, length: int, s: int
) -> list[float]:
    """The definition as a sum over later TD errors, each with its product of traces."""
    returns = []
    for t in range(length):
        total, factor = float(q[t, s]), 1.0
        for k in range(t, length):
            error = float(rewards[k, s] + discounts[k, s] * values[k + 1, s] - q[k, s])
            total += factor * error
            factor *= float(discounts[k, s]) * (min(1.0, float(ratios[k + 1, s])) * 0.8 if k + 1 < length else 0.0)
        returns.append(total)
    return returns


def test_windows_side_by_side_do_not_see_each_other_or_their_padding() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 2, 4]
    q, rewards = (torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    ratios = 2 * torch.rand(5, 3, generator=generator, dtype=torch.float64)
    values = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    discounts = torch.full((5, 3), 0.9, dtype=torch.float64)
    discounts[3, 2] = 0.0  # this one terminates
    mask = torch.arange(5)[:, None] < torch.tensor(lengths)
    returns = retrace_returns(q, values, ratios, rewards, discounts, mask, 0.8)
    for s, length in enumerate(lengths):
        expected = slow(q, values, ratios, rewards, discounts, length, s)
        np.testing.assert_allclose(returns[:length, s], expected, atol=1e-12)
    changed = values.clone()
    changed[3:, 1] = 99.0
    again = retrace_returns(q.where(mask, torch.tensor(7.0).double()), changed, ratios, rewards, discounts, mask, 0.8)
    np.testing.assert_allclose(again[mask], returns[mask])


def test_on_policy_with_lambda_one_it_is_the_sum_of_rewards_when_q_is_its_own_value() -> None:
    """Every q equals its state's value: then only rewards and the last value are left."""
    values = torch.tensor([[3.0], [2.0], [5.0], [4.0]])
    returns = retrace_returns(
        values[:-1], values, torch.ones(3, 1), torch.ones(3, 1), torch.full((3, 1), 0.5), torch.ones(3, 1).bool(), 1.0
    )
    np.testing.assert_allclose(returns[:, 0], [1 + 0.5 + 0.25 + 0.125 * 4, 1 + 0.5 + 0.25 * 4, 1 + 0.5 * 4])
