"""Retrace: returns of action values from the trajectories of another policy.

Munos, Stepleton, Harutyunyan, Bellemare (2016), arXiv:1606.02647.
"""

from __future__ import annotations

import torch
from torch import Tensor


def retrace_returns(
    q_taken: Tensor,
    values: Tensor,
    ratios: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    mask: Tensor,
    trace_lambda: float,
) -> Tensor:
    """Returns from the trajectories of another policy mu.   [L, S]

        G_t = r_t + d_t (V_{t+1} + c_{t+1} (G_{t+1} - Q(s_{t+1}, a_{t+1})))
        c_t = lambda min(1, pi(a_t|s_t) / mu(a_t|s_t))

    `q_taken`, `ratios`, `rewards`, `discounts` and `mask` [L, S] belong to the steps of windows; `values` [L + 1, S]
    also to the observation behind the last step: V(s) = sum_a pi(a|s) Q(s, a). The trace ends where a window ends
    (`mask`), with its last value; a discount of 0 ends the sum. Nothing here needs gradients.
    """
    traces = trace_lambda * ratios.clamp(max=1.0)
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[0])  # c_t+1 (G_t+1 - Q_t+1); 0 behind the last step of a window
    for t in reversed(range(len(rewards))):
        returns[t] = rewards[t] + discounts[t] * (values[t + 1] + following)
        following = torch.where(mask[t], traces[t] * (returns[t] - q_taken[t]), 0.0)
    return returns
