"""Replay in shards, one buffer per actor: the columns of a buffer must be in step, and actors are not.

Together the shards are one buffer: every valid row has the same chance, or the chance that its priority gives it, in
whichever shard it is. An index is shard * rows of a shard + index in the shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rl_training.data.priority_options import importance_weights
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.transitions import Transitions


class ShardedReplay:
    """Equal buffers that are sampled as one."""

    def __init__(self, shards: Sequence[ReplayBuffer]) -> None:
        assert len({shard.capacity for shard in shards}) == 1
        self.shards = tuple(shards)
        self._rows = shards[0].capacity

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.shards)

    def cut(self) -> None:
        """Truncate the newest row of every env: no n-step window crosses it."""
        for shard in self.shards:
            shard.cut()

    def sample(
        self, batch_size: int, rng: np.random.Generator, importance_exponent: float | None = None
    ) -> Transitions:
        """Sample with replacement; with `importance_exponent` (beta) by priority. Rows are in the order of shards."""
        if importance_exponent is None:
            return self._gather(self._draw_uniform(batch_size, rng))
        masses = np.cumsum([shard.priority_mass for shard in self.shards])
        if not masses[-1] > 0:
            raise ValueError("the replay buffer has no transitions to sample")
        # One draw from each of batch_size equal strata of the mass of all shards.
        sums = (np.arange(batch_size) + rng.random(batch_size)) * (masses[-1] / batch_size)
        starts = np.concatenate([[0.0], masses[:-1]])
        last = int(np.flatnonzero(masses > starts)[-1])  # rounding may lead past the end
        shards = np.minimum(np.searchsorted(masses, sums, side="right"), last)
        indices, priorities = [], []
        for number in np.unique(shards):
            rows, found = self.shards[number].find(sums[shards == number] - starts[number])
            indices.append(number * self._rows + rows)
            priorities.append(found)
        weights = importance_weights(np.concatenate(priorities), importance_exponent)
        return replace(self._gather(np.concatenate(indices)), weights=weights)

    def update_priorities(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of sampled rows."""
        for number, shard in enumerate(self.shards):
            mine = indices // self._rows == number
            if mine.any():
                shard.update_priorities(indices[mine] - number * self._rows, priorities[mine])

    def _draw_uniform(self, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        counts = np.cumsum([len(shard) for shard in self.shards])
        if counts[-1] == 0:
            raise ValueError("the replay buffer has no transitions to sample")
        shards = np.searchsorted(counts, rng.integers(counts[-1], size=batch_size), side="right")
        wanted = np.bincount(shards, minlength=len(self.shards))
        return np.concatenate(
            [
                number * self._rows + shard.draw_uniform(int(wanted[number]), rng)
                for number, shard in enumerate(self.shards)
                if wanted[number]
            ]
        )

    def _gather(self, indices: np.ndarray) -> Transitions:
        """The rows of these indices, which are in the order of shards."""
        numbers = indices // self._rows
        batches = [
            self.shards[number].rows(indices[numbers == number] - number * self._rows) for number in np.unique(numbers)
        ]
        columns = {
            name: torch.cat([getattr(batch, name) for batch in batches])
            for name in ("obs", "actions", "rewards", "next_obs", "discounts")
        }
        return Transitions(**columns, indices=indices)

    def state_dict(self) -> dict[str, Any]:
        return {"shards": {str(number): shard.state_dict() for number, shard in enumerate(self.shards)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the counters and forget all rows; each shard imports its own rows afterwards."""
        states = state.get("shards", {})
        if len(states) != len(self.shards):
            raise ValueError(f"replay state does not fit: it has {len(states)} shards, not {len(self.shards)}")
        for number, shard in enumerate(self.shards):
            shard.load_state_dict(states[str(number)])
