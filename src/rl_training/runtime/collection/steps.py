"""One step of a vector env as the learner sees it, and the episodes that steps add up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode with its raw return, and the numbers of its last info that the run logs."""

    total_reward: float
    length: int
    info: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(slots=True)
class Step:
    """One vector step [N, ...].

    Rows with `valid` False are not transitions. They are the resets of next-step autoreset and the steps in which an
    env broke (`broken`); the episode of a broken env ends with the row before, truncated at `obs`.
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    episode_starts: np.ndarray
    extras: dict[str, np.ndarray]
    memory: Any  # before the step
    episodes: list[Episode] = field(default_factory=list)
    broken: np.ndarray | None = None  # None: no env broke


class EpisodeStatistics:
    """The return and length of the episode that each env is in.

    `every_env` is the array of ones that a step uses as its mask when all rows are valid: the check by identity is
    cheaper than a multiplication.
    """

    def __init__(self, every_env: np.ndarray):
        self._every_env = every_env
        self.returns = np.zeros(len(every_env))  # float64, so far
        self._lengths = np.zeros(len(every_env), np.int64)

    def add(self, rewards: np.ndarray, valid: np.ndarray) -> None:
        """Count one step of every env whose row is valid."""
        self.returns += rewards if valid is self._every_env else rewards * valid
        self._lengths += valid

    def finish(
        self, done: np.ndarray, valid: np.ndarray, info_of: Callable[[int], Mapping[str, float]] = lambda env: {}
    ) -> list[Episode]:
        """The episodes that end in this step, with the numbers of each. Every env in `done` starts again at zero."""
        ended = np.flatnonzero(done & valid).tolist()
        episodes = [Episode(float(self.returns[env]), int(self._lengths[env]), info_of(env)) for env in ended]
        self.clear(done)
        return episodes

    def follow(self, returns: np.ndarray, lengths: np.ndarray) -> None:
        """Take returns and lengths that were counted elsewhere."""
        self.returns, self._lengths = returns, lengths.copy()

    @property
    def longest(self) -> int:
        """The length of the longest running episode so far."""
        return int(self._lengths.max())

    def clear(self, envs: np.ndarray) -> None:
        """Forget the running episodes of the envs in the mask `envs`."""
        self.returns[envs] = 0.0
        self._lengths[envs] = 0
