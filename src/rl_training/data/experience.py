"""What an actor of Ape-X sends home: vector steps for replay, and how surprising they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Experience:
    """T vector steps of the N envs of one actor, [T, N, ...]; see `Step` for what the columns mean."""

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray  # as the envs gave them
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    broken: np.ndarray  # envs that broke in the step
    fresh: bool  # the first step starts new episodes: no n-step window reaches into it
    priorities: np.ndarray | None  # [C + T, N] of the steps and of the C before them, whose windows they complete

    def __len__(self) -> int:
        return len(self.rewards)
