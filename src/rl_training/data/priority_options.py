"""Prioritized replay: how priorities become chances, and the weights that correct for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """Proportional priorities: rows are drawn in proportion to (|priority| + epsilon) ** exponent.

    With a `floor`, to max(|priority|, floor) ** exponent (LAP, arXiv:2007.06049). A new row gets the highest priority
    so far; with `refresh_every`, that is looked up again among the stored rows after so many updates.
    """

    exponent: float = 0.6
    epsilon: float = 1e-6
    floor: float = 0.0
    refresh_every: int = 0


def importance_weights(priorities: np.ndarray, exponent: float) -> torch.Tensor:
    """(N P) ** -beta divided by its maximum in the batch: N and the total cancel."""
    ratios = (priorities / priorities.min()) ** -exponent
    return torch.from_numpy(ratios.astype(np.float32))
