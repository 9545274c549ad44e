"""Hindsight experience replay: learn from goals that were reached by chance.

Andrychowicz et al. (2017), arXiv:1707.01495.

A share of the sampled rows gets another goal: the one that was achieved at this or a later step of the same episode
(the paper's strategy "future"). Rewards and ends are computed anew with that goal, for all rows of an n-step window.
Stored rows stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.data.transitions import Transitions
from rl_training.envs.goals import GoalColumns, GoalRules

# The first vector steps in which the env's own rewards are compared with compute_reward.
CHECKED_STEPS = 50
_OPEN = -1


@dataclass(frozen=True)
class Hindsight:
    """How rows get other goals: the share of them, where goals are, and what the env says about them."""

    share: float
    columns: GoalColumns
    rules: GoalRules
    shape_rewards: Callable[[np.ndarray], np.ndarray] = lambda rewards: rewards


class GoalReplay(ReplayBuffer):
    """A replay buffer that relabels goals when it is sampled.

    `_ends` has, for each row, the number of the last row of its episode, or `_OPEN` while the episode goes on. It
    follows from the columns of the ring: `_find_ends` rebuilds it after a load.
    """

    def __init__(
        self,
        layout: ReplayLayout,
        hindsight: Hindsight,
        *,
        gamma: float,
        n_step: int = 1,
        prioritized: PriorityOptions | None = None,
    ) -> None:
        super().__init__(layout, gamma=gamma, n_step=n_step, prioritized=prioritized)
        self.hindsight = hindsight
        self._ends: np.ndarray | None = np.full((self.slots, self.num_envs), _OPEN, np.int64)
        self._starts = np.zeros(self.num_envs, np.int64)  # the first row of the episode that goes on in each env

    def add(
        self,
        obs: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        valid: np.ndarray | None = None,
    ) -> None:
        self._known_ends()
        row = self.rows_written
        every = np.ones(self.num_envs, bool) if valid is None else np.asarray(valid, bool)
        if row < CHECKED_STEPS and every.any():
            self._check(next_obs[every], rewards[every], np.asarray(terminated, bool)[every])
        super().add(obs, actions, rewards, next_obs, terminated, truncated, valid)
        self._known_ends()[row % self.slots] = _OPEN
        for env in np.flatnonzero(~every):  # not a transition: what went on before it is over
            self._close(env, row - 1)
            self._starts[env] = row + 1
        for env in np.flatnonzero((terminated | truncated) & every):
            self._close(env, row)

    def cut(self, envs: np.ndarray | None = None) -> None:
        super().cut(envs)
        if self.rows_written:
            for env in np.arange(self.num_envs) if envs is None else np.flatnonzero(envs):
                self._close(env, self.rows_written - 1)

    def sample(
        self, batch_size: int, rng: np.random.Generator, importance_exponent: float | None = None
    ) -> Transitions:
        indices, weights = self._draw(batch_size, rng, importance_exponent)
        relabeled = rng.random(batch_size) < self.hindsight.share
        goals = self._later_goals(indices, rng)
        flat, columns = self._flat, self.hindsight.columns
        window = self._windows(indices)
        rewards, terminated = flat["rewards"][window], flat["terminated"][window]
        ends = terminated | flat["truncated"][window]
        if relabeled.any():
            self._judge(window, relabeled, goals, rewards, terminated)
            ends |= terminated
        sums, discounts, last = self._sum(indices, window, rewards, terminated, ends)
        obs, next_obs = self.observations.read(indices, last)
        for array in (obs, next_obs):
            array[relabeled, columns.desired] = goals[relabeled]
        return Transitions(
            obs=torch.from_numpy(obs),
            actions=torch.from_numpy(flat["actions"].take(indices, axis=0)),
            rewards=torch.from_numpy(sums),
            next_obs=torch.from_numpy(next_obs),
            discounts=torch.from_numpy(discounts),
            weights=weights,
            indices=indices,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._ends = None

    def import_rows(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        super().import_rows(start, arrays)
        self._ends = None

    def _later_goals(self, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """For each row, the goal achieved at a random step from it to the end of its episode, or to now."""
        slots, envs = np.divmod(indices, self.num_envs)
        newest = self.rows_written - 1
        rows = newest - (newest - slots) % self.slots
        ends = self._known_ends()[slots, envs]
        last = np.where(ends == _OPEN, newest, ends)
        chosen = rows + rng.integers(last - rows + 1)
        goals: np.ndarray = self._achieved(chosen % self.slots * self.num_envs + envs)
        return goals

    def _achieved(self, indices: np.ndarray) -> np.ndarray:
        """The goals that the steps `indices` led to."""
        return self._flat["next_obs"][indices, self.hindsight.columns.achieved]

    def _judge(
        self,
        window: np.ndarray,
        relabeled: np.ndarray,
        goals: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
    ) -> None:
        """Write the rewards and ends of relabeled windows [n, B] into `rewards` and `terminated`."""
        rows = window[:, relabeled]
        achieved = self._achieved(rows.ravel())
        desired = np.broadcast_to(goals[relabeled], (len(rows), *goals[relabeled].shape)).reshape(achieved.shape)
        rules = self.hindsight.rules
        rewards[:, relabeled] = self.hindsight.shape_rewards(rules.rewards(achieved, desired)).reshape(rows.shape)
        if rules.ends_episodes:
            terminated[:, relabeled] = rules.terminated(achieved, desired).reshape(rows.shape)

    def _check(self, next_obs: np.ndarray, rewards: np.ndarray, terminated: np.ndarray) -> None:
        columns, rules = self.hindsight.columns, self.hindsight.rules
        achieved, desired = next_obs[:, columns.achieved], next_obs[:, columns.desired]
        if self.rows_written == 0:
            rules.check(achieved, desired)
        found = self.hindsight.shape_rewards(rules.rewards(achieved, desired))
        rules.check_outcome(achieved, desired, found, rewards, terminated)

    def _close(self, env: np.integer[Any] | int, last: int) -> None:
        """The episode of `env` has ended with row `last`."""
        start = max(int(self._starts[env]), last - self.slots + 1)
        self._starts[env] = last + 1
        self._known_ends()[np.arange(start, last + 1) % self.slots, env] = last

    def _known_ends(self) -> np.ndarray:
        if self._ends is None:
            self._ends = self._find_ends()
        return self._ends

    def _find_ends(self) -> np.ndarray:
        """`_ends` and `_starts` from the columns of the ring."""
        ends = np.full((self.slots, self.num_envs), _OPEN, np.int64)
        rows = np.arange(self.oldest_row, self.rows_written)
        slots = rows % self.slots
        over = self._rows["terminated"][slots] | self._rows["truncated"][slots]
        valid = self._rows["valid"][slots]
        over[:-1] |= ~valid[1:]
        over |= ~valid
        never = np.iinfo(np.int64).max
        found = np.minimum.accumulate(np.where(over, rows[:, None], never)[::-1], axis=0)[::-1]
        ends[slots] = np.where(found == never, _OPEN, found)
        self._starts = np.where(over, rows[:, None] + 1, self.oldest_row).max(axis=0, initial=0)
        return ends
