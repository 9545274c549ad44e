"""Single rows of a replay batch, and networks of plain layers, for the references of value-based algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.data.transitions import Transitions


def one_row(reward: float, discount: float, action: int = 1) -> Transitions:
    nothing = torch.zeros(1, 3)
    return Transitions(nothing, torch.tensor([action]), torch.tensor([reward]), nothing, torch.tensor([discount]))


def slow_huber_quantiles(estimates: Any, samples: Any, taus: Any) -> Any:
    """Pair by pair: a sum over the estimates, a mean over the samples. Gradients flow into the estimates."""
    loss: Any = 0.0
    for theta, tau in zip(estimates, taus, strict=True):
        for sample in samples:
            u = sample - theta
            size = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
            loss = loss + (tau if u >= 0 else 1 - tau) * size / len(samples)
    return loss


def coin_batch(batch: Transitions, stake: float, rng: np.random.Generator) -> Transitions:
    """`batch` with rewards of -stake or +stake at random, after which episodes terminate."""
    batch.rewards = torch.from_numpy(rng.choice([-stake, stake], len(batch)).astype(np.float32))
    batch.discounts = torch.zeros(len(batch))
    return batch


def float64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
