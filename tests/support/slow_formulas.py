"""Formulas of the papers as slow loops, for several tests."""

from __future__ import annotations

import math

import numpy as np

from rl_training.data.rollout import Rollout


def slow_projection(reward: float, discount: float, probabilities: list[float], support: list[float]) -> list[float]:
    """Algorithm 1 of arXiv:1707.06887, atom by atom; where its l and u fall together, that atom gets the mass."""
    low, high = support[0], support[-1]
    spacing = (high - low) / (len(support) - 1)
    m = [0.0] * len(support)
    for j, probability in enumerate(probabilities):
        b = (min(high, max(low, reward + discount * support[j])) - low) / spacing
        lower, upper = math.floor(b), math.ceil(b)
        if lower == upper:
            m[lower] += probability
        else:
            m[lower] += probability * (upper - b)
            m[upper] += probability * (b - lower)
    return m


def slow_advantages(rollout: Rollout, found: dict[str, np.ndarray], gamma: float, trace: float) -> np.ndarray:
    """GAE by its definition, along each episode, with every value remembered as `found` has it."""
    alive = ~rollout.terminated
    errors = rollout.rewards + gamma * alive * found["next_values"] - found["values"]
    advantages = np.zeros(errors.shape)
    for env in range(errors.shape[1]):
        for t in range(len(errors)):
            for k in range(t, len(errors)):
                advantages[t, env] += (gamma * trace) ** (k - t) * errors[k, env]
                if rollout.ends[k, env]:
                    break
    return advantages


def slow_quantile_loss(quantiles: list[float], targets: list[float], taus: list[float]) -> float:
    """Eq. 10 of arXiv:1710.10044 with kappa = 1: a sum over the quantiles of a mean over the targets."""
    total = 0.0
    for theta, tau in zip(quantiles, taus, strict=True):
        for sample in targets:
            u = sample - theta
            huber = 0.5 * u * u if abs(u) <= 1.0 else abs(u) - 0.5
            total += abs(tau - (1.0 if u < 0 else 0.0)) * huber / len(targets)
    return total
