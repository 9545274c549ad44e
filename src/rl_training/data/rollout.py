"""One on-policy rollout: T steps of N envs, with episode boundaries already resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

ROLLOUT_FIELDS = ("obs", "actions", "rewards", "terminated", "truncated", "valid", "episode_starts")
"""The fields of a rollout that have a row for every step of every env."""


@dataclass(slots=True)
class Rollout:
    """Arrays [T, N, ...], made by the collector. They are reused: a rollout is valid until the next is collected.

    `valid` is False for rows that are not transitions (for example the reset step of next-step autoreset); no loss uses
    them. `terminated` and `truncated` are separate. Where an episode was truncated, `final_obs` has the observation
    that really followed: row k belongs to step `final_steps[k]` of env `final_envs[k]`.
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    episode_starts: np.ndarray
    last_obs: np.ndarray  # [N, ...]: the observations after the last step
    final_steps: np.ndarray
    final_envs: np.ndarray
    final_obs: np.ndarray
    extras: dict[str, np.ndarray] = field(default_factory=dict)  # per step, from Learner.act: log_probs, ...
    initial_memory: Any = None

    @property
    def ends(self) -> np.ndarray:
        """Where an episode ends, for either reason: no trace may cross it."""
        ends: np.ndarray = self.terminated | self.truncated
        return ends

    def discounts(self, gamma: float) -> np.ndarray:
        """gamma, or 0 after termination. Truncation keeps gamma: the task continues, it is only not observed."""
        return np.where(self.terminated, np.float32(0.0), np.float32(gamma))

    def next_values(self, values: np.ndarray, last_values: np.ndarray, final_values: np.ndarray) -> np.ndarray:
        """V of the true successor of every step, from V(obs) [T, N], V(last_obs) [N] and V(final_obs) [K]."""
        next_values = np.concatenate([values[1:], last_values[None]])
        next_values[self.final_steps, self.final_envs] = final_values
        return next_values
