"""Rollouts for policies with memory: sequences, and the rule by which they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_training.data.rollout import Rollout
from rl_training.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sequences:
    """The time structure of a minibatch: S sequences side by side, padded at their ends to the longest, [L, S].

    The rows themselves stay flat, without padding; only code that runs over time (`unroll` of a model) uses [L, S].
    """

    mask: Tensor  # [L, S]: False is padding
    place: Tensor  # [L, S]: the minibatch row at this place. Padding points at some row; its result is not used
    rows: Tensor  # [B]: the place of each minibatch row in [L * S]
    memory: Tensor  # [S, ...]: the memory of the policy before the first step

    def to(self, device: torch.device) -> Sequences:
        return Sequences(*(part.to(device) for part in (self.mask, self.place, self.rows, self.memory)))


class RecurrentRolloutBuffer:
    """One rollout [T, N], cut into sequences for training through time.

    The rule: a sequence is up to `sequence_length` consecutive transitions of ONE env within ONE episode. It is cut
    where an episode starts and, counted from there or from the first step of the rollout, after every
    `sequence_length` steps. It begins with the memory that the policy had when it acted there: empty at the start of
    an episode. So no state is reset inside a sequence, and no gradient crosses episodes or envs.

    `rollout.extras["memory"]` [T, N, ...] has the memory AFTER each step, `rollout.initial_memory` the memory before
    the first step (None means empty).
    """

    def __init__(self, sequence_length: int):
        if sequence_length < 1:
            raise ConfigError(f"sequence_length: {sequence_length} is not valid, expected integer >= 1")
        self.sequence_length = sequence_length
        self.num_envs = 0
        self.envs: np.ndarray = np.zeros(0, np.int64)
        self.steps: np.ndarray = self.envs
        self.lengths: np.ndarray = self.envs
        self.episode_starts: np.ndarray = np.zeros(0, bool)
        self.memory = np.zeros((0, 0, 0), np.float32)

    def __len__(self) -> int:
        return len(self.lengths)

    def store(self, rollout: Rollout) -> None:
        """Take over a rollout; it replaces the one before."""
        self.num_envs = rollout.rewards.shape[1]
        first = self._first_steps(rollout.episode_starts, rollout.valid)
        # Env by env, so that a sequence's rows follow its first one.
        self.envs, self.steps = np.nonzero(first.T)
        sequence = np.cumsum(first.T.ravel()) - 1
        self.lengths = np.bincount(sequence[rollout.valid.T.ravel()], minlength=len(self.envs))
        self.episode_starts = rollout.episode_starts[self.steps, self.envs]
        self.memory = rollout.extras["memory"][np.maximum(self.steps - 1, 0), self.envs]
        opening = self.steps == 0
        if rollout.initial_memory is not None:
            self.memory[opening] = rollout.initial_memory[self.envs[opening]]
        # Without an initial memory every env is at a start, or the policy has not seen what came before.
        self.memory[self.episode_starts | (opening & (rollout.initial_memory is None))] = 0

    def _first_steps(self, episode_starts: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """The first steps of sequences, as a mask [T, N]."""
        first = np.zeros(valid.shape, bool)
        done = np.full(valid.shape[1], self.sequence_length)  # steps of the running sequence
        for t in range(len(valid)):
            done[episode_starts[t]] = self.sequence_length
            first[t] = valid[t] & (done >= self.sequence_length)
            done = np.where(first[t], 1, done + 1)
            done[~valid[t]] = self.sequence_length  # not a transition: a new sequence follows it
        return first

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Sequences]]:
        """One epoch in random order: row numbers in the flat rollout [T * N], and their time structure.

        Sequences stay whole; each minibatch has about `size` transitions.
        """
        total = int(self.lengths.sum())
        count = max(1, round(total / size))
        order = rng.permutation(len(self))
        middles = np.cumsum(self.lengths[order]) - self.lengths[order] / 2
        shares = (middles * count / total).astype(np.int64)
        for share in np.unique(shares):
            yield self.select(order[shares == share])

    def select(self, chosen: np.ndarray) -> tuple[Tensor, Sequences]:
        """These sequences as a minibatch, with rows in order of time."""
        lengths = self.lengths[chosen]
        times = np.arange(lengths.max())[:, None]
        mask = times < lengths
        numbers = (self.steps[chosen] + times) * self.num_envs + self.envs[chosen]
        place = np.zeros(mask.shape, np.int64)
        place[mask] = np.arange(mask.sum())
        columns = (mask, place, np.flatnonzero(mask), self.memory[chosen])
        return torch.from_numpy(numbers[mask]), Sequences(*(torch.from_numpy(column) for column in columns))
