"""Steps of the collector, written row by row into the arrays of a rollout."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.data.rollout import ROLLOUT_FIELDS, Rollout
from rl_training.runtime.collection.steps import Step


class RolloutWriter:
    """Writes one rollout after another into the same arrays, so a rollout is valid until the next one starts."""

    def __init__(self) -> None:
        self._storage: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})  # fields and extras
        self.start(0, None)

    def start(self, num_steps: int, initial_memory: Any) -> None:
        """Begin a rollout of `num_steps` vector steps."""
        self._num_steps, self._initial_memory = num_steps, initial_memory
        self._next_row = 0
        self._fields: dict[str, np.ndarray] = {}
        self._extras: dict[str, np.ndarray] = {}
        self._final_rows: list[tuple[int, int]] = []
        self._final_obs: list[np.ndarray] = []

    def add(self, step: Step) -> None:
        row = self._next_row
        if row == 0:
            self._allocate(step)
        for name, column in self._fields.items():
            column[row] = getattr(step, name)
        for name, value in step.extras.items():
            self._extras[name][row] = value
        if step.episodes:
            self._keep_final_observations(row, step.truncated & step.valid, step.next_obs)
        if step.broken is not None and row > 0:
            self._truncate_row(row - 1, step.broken, step.obs)
        self._next_row = row + 1

    def finish(self, last_obs: np.ndarray) -> Rollout:
        """The rollout; `last_obs` is what follows its last step."""
        steps, envs = zip(*self._final_rows, strict=True) if self._final_rows else ((), ())
        return Rollout(
            **self._fields,
            last_obs=last_obs,
            final_steps=np.array(steps, np.int64),
            final_envs=np.array(envs, np.int64),
            final_obs=np.array(self._final_obs, last_obs.dtype).reshape(-1, *last_obs.shape[1:]),
            extras=self._extras,
            initial_memory=self._initial_memory,
        )

    def _truncate_row(self, row: int, broken: np.ndarray, obs: np.ndarray) -> None:
        """End the episodes of broken envs at their last good row: `obs` is the last observation they returned."""
        fields = self._fields
        running = fields["valid"][row] & ~(fields["terminated"][row] | fields["truncated"][row])
        cut = broken & running
        fields["truncated"][row] |= cut
        self._keep_final_observations(row, cut, obs)

    def _keep_final_observations(self, row: int, truncated: np.ndarray, final_obs: np.ndarray) -> None:
        for env in np.flatnonzero(truncated):
            self._final_rows.append((row, int(env)))
            self._final_obs.append(final_obs[env])

    def _allocate(self, step: Step) -> None:
        fields, extras = self._storage
        if not fields or len(fields["obs"]) < self._num_steps:
            fields = {name: self._array_for(getattr(step, name)) for name in ROLLOUT_FIELDS}
            extras = {name: self._array_for(value) for name, value in step.extras.items()}
            self._storage = (fields, extras)
        self._fields = {name: array[: self._num_steps] for name, array in fields.items()}
        self._extras = {name: array[: self._num_steps] for name, array in extras.items()}

    def _array_for(self, value: np.ndarray) -> np.ndarray:
        return np.empty((self._num_steps, *value.shape), value.dtype)
