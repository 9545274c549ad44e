"""What an actor of A3C sends home: the gradient on its rollout, and what the learner must know of the rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and variance of observations: all that statistics need of them."""

    count: int
    mean: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True, slots=True)
class Push:
    """The gradient of a loss on one rollout of the envs of one actor, by the weights that collected it."""

    gradient: np.ndarray | None  # flat, float32; None if the rollout has no valid row
    metrics: Mapping[str, np.ndarray]
    rewards: np.ndarray  # [T, N], as the envs gave them
    valid: np.ndarray  # [T, N]
    reward_max: float  # the largest shaped reward in size
    moments: Moments | None  # of the valid observations, if the model keeps statistics
