"""V-trace: value targets and advantages from trajectories that another policy collected.

Espeholt et al. (2018), arXiv:1802.01561, section 4.1. Pure functions of arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class VTrace(NamedTuple):
    """The result of `vtrace`, each [T, N]."""

    targets: np.ndarray  # v_t, the target of V(s_t)
    advantages: np.ndarray  # q_t - V(s_t), for a surrogate that has its own importance ratio
    policy_gradient_advantages: np.ndarray  # the same times min(pg_rho_bar, pi/mu)


def vtrace(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    discounts: np.ndarray,
    ends: np.ndarray,
    log_probs: np.ndarray,
    behavior_log_probs: np.ndarray,
    *,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float = 1.0,
    trace_lambda: float = 1.0,
) -> VTrace:
    """V-trace targets and policy-gradient advantages                                     (eq. 1 and section 4.2)

    v_t - V(s_t) = rho_t delta_t + d_t lambda (1 - end_t) c_t (v_{t+1} - V(s_{t+1}))
    q_t - V(s_t) =       delta_t + d_t lambda (1 - end_t)     (v_{t+1} - V(s_{t+1}))
    delta_t = r_t + d_t V(s'_t) - V(s_t),   rho_t = min(rho_bar, pi/mu),   c_t = min(c_bar, pi/mu)

    All arrays are [T, N], with the conventions of `returns.gae`: `next_values` is V of the TRUE successor s'_t (the
    final observation where an episode was cut), `discounts` is gamma, or 0 after termination, and `ends` is True where
    an episode stops for either reason; the trace stops there too. `log_probs` belong to the policy pi that is learned,
    `behavior_log_probs` to the policy mu that acted. With lambda 1, q_t is the paper's r_t + gamma v_{t+1}. Below 1, it
    uses V as much as the targets do, so with pi = mu both the advantages and v_t - V(s_t) equal those of GAE.
    """
    names = ("rewards", "values", "next_values", "discounts", "ends", "log_probs", "behavior_log_probs")
    arrays = (rewards, values, next_values, discounts, ends, log_probs, behavior_log_probs)
    if rewards.ndim != 2 or any(array.shape != rewards.shape for array in arrays):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(names, arrays, strict=True))
        raise ValueError(f"V-trace needs arrays of the same shape [T, N], got {shapes}")
    for name, cap in (("rho_bar", rho_bar), ("c_bar", c_bar), ("pg_rho_bar", pg_rho_bar)):
        if not cap > 0:
            raise ValueError(f"V-trace needs {name} > 0, got {cap}")
    with np.errstate(over="ignore"):  # an infinite weight is capped like any other large one
        weights = np.exp(log_probs - behavior_log_probs)
    deltas = rewards + discounts * next_values - values
    trace = discounts * trace_lambda * ~ends
    own_errors, reach = np.minimum(weights, rho_bar) * deltas, np.minimum(weights, c_bar) * trace
    corrections = np.empty_like(deltas)  # v_t - V(s_t)
    running = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = own_errors[t] + reach[t] * running
        corrections[t] = running
    advantages = deltas
    advantages[:-1] += trace[:-1] * corrections[1:]
    return VTrace(values + corrections, advantages, np.minimum(weights, pg_rho_bar) * advantages)
