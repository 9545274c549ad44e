"""Returns and advantages over [T, N] rollouts, as pure functions of arrays."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    discounts: np.ndarray,
    ends: np.ndarray,
    gae_lambda: float,
) -> np.ndarray:
    """Generalized advantage estimation, arXiv:1506.02438, eq. 16.

    A_t = delta_t + d_t * lambda * (1 - end_t) * A_{t+1},   delta_t = r_t + d_t * V(s'_t) - V(s_t)

    All arrays are [T, N]. `next_values` is V of the TRUE successor s'_t: the final observation where an episode was
    cut, not the first one of the next episode. `discounts` is gamma, or 0 after termination. `ends` is True where an
    episode stops for either reason; the trace stops there too.
    """
    advantages: np.ndarray = rewards + discounts * next_values - values
    trace = discounts * gae_lambda * ~ends
    rows = list(zip(advantages, advantages[1:], trace, strict=False))  # the last row is complete
    for row, later, weight in reversed(rows):
        row += weight * later
    return advantages


def lambda_returns(
    rewards: np.ndarray, next_values: np.ndarray, discounts: np.ndarray, ends: np.ndarray, trace_lambda: float
) -> np.ndarray:
    """Returns that mix all numbers of steps, with weights lambda^k: arrays as in `gae`.

        R_t = r_t + d_t ((1 - lambda) V(s'_t) + lambda R_{t+1})

    At the end of an episode it is r_t + d_t V(s'_t). So is the last row of a rollout, which has no R_{t+1}.
    """
    returns: np.ndarray = rewards + discounts * next_values
    trace = discounts * trace_lambda * ~ends
    rows = list(zip(returns, returns[1:], next_values, trace, strict=False))  # the last row is complete
    for row, later, value, weight in reversed(rows):
        row += weight * (later - value)
    return returns


def explained_variance(predictions: Tensor, targets: Tensor) -> Tensor:
    """1 - Var(target - prediction) / Var(target): 1 is perfect, 0 is no better than a constant, below 0 is worse."""
    return 1.0 - (targets - predictions).var(correction=0) / targets.var(correction=0)
