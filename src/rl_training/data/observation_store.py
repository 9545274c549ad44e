"""Where a replay buffer keeps its observations: whole here, or as single frames in frame_store.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.data.replay_layout import Column, ReplayLayout


class ObservationStore(ABC):
    """Keeps the observations before and after each row of the ring.

    `rows` are its columns of the ring, [slots, num_envs, ...]; the buffer exports and imports them with its own. A
    store whose rows only refer to something it keeps elsewhere overrides the methods below `read` as well.
    """

    def __init__(self, layout: ReplayLayout) -> None:
        self.rows = layout.allocate(self.columns(layout))

    @staticmethod
    @abstractmethod
    def columns(layout: ReplayLayout) -> dict[str, Column]:
        """Names, shapes and dtypes of `rows`."""

    @abstractmethod
    def write(self, row: int, obs: np.ndarray, next_obs: np.ndarray) -> Sequence[int]:
        """Store vector step number `row`. Returns the flat indices of older rows that lost their observations."""

    @abstractmethod
    def read(self, indices: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The observations before the rows `indices` and after the rows `last` (flat indices, any number of each)."""

    @classmethod
    def predicted_bytes(cls, layout: ReplayLayout) -> int:
        """The `nbytes` of a store with this layout, without allocating it."""
        return layout.bytes_of(cls.columns(layout))

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows.values())

    def description(self) -> dict[str, Any]:
        """What two stores must have in common for one to import the rows of the other."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The store's part of the buffer's state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the counters; the rows follow by `import_rows`."""
        return

    def export_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What exported `rows` refer to."""
        return {}

    def refuses_rows(self, arrays: Mapping[str, np.ndarray]) -> str | None:
        """Why `import_rows` cannot take these arrays, or None."""
        return None

    def import_rows(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Take over what exported rows refer to. The buffer has already filled `rows`.

        Returns a mask [slots, num_envs] of the rows whose observations are all stored; None means every row.
        """
        return None


class WholeObservations(ObservationStore):
    """Every row has its observations: most are stored twice, as `next_obs` of one row and `obs` of the next."""

    def __init__(self, layout: ReplayLayout) -> None:
        super().__init__(layout)
        self._slots = layout.slots
        self._obs, self._next_obs = self.rows["obs"], self.rows["next_obs"]
        shape, _ = layout.observation
        self._flat_obs = self._obs.reshape(layout.transitions, *shape)
        self._flat_next_obs = self._next_obs.reshape(layout.transitions, *shape)

    @staticmethod
    def columns(layout: ReplayLayout) -> dict[str, Column]:
        return {"obs": layout.observation, "next_obs": layout.observation}

    def write(self, row: int, obs: np.ndarray, next_obs: np.ndarray) -> Sequence[int]:
        slot = row % self._slots
        self._obs[slot] = obs
        self._next_obs[slot] = next_obs
        return ()

    def read(self, indices: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._flat_obs.take(indices, axis=0), self._flat_next_obs.take(last, axis=0)
