"""The replay buffer: a ring of transitions of vector envs, sampled uniformly or by priority, with n-step returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rl_training.data.frame_store import FrameStore
from rl_training.data.mixed_store import MixedStore
from rl_training.data.observation_store import ObservationStore, WholeObservations
from rl_training.data.priority_options import PriorityOptions, importance_weights
from rl_training.data.replay_layout import Column, ReplayLayout
from rl_training.data.sum_tree import SumTree
from rl_training.data.transitions import Transitions
from rl_training.errors import NumericalError

# Below this share of valid rows, listing them is cheaper than drawing until a valid one is drawn.
_MINIMUM_ACCEPTANCE = 0.25


class ReplayBuffer:
    """Transitions in a ring of vector steps, one row per environment and step.

    A transition is named by its flat index, slot * num_envs + env. Rows hold single steps; n-step sums are computed
    when sampling, so a window always uses what came after the row, also when that came later. Observations are kept
    by `observations`, everything else in columns of the ring.
    """

    def __init__(
        self, layout: ReplayLayout, *, gamma: float, n_step: int = 1, prioritized: PriorityOptions | None = None
    ) -> None:
        if n_step < 1:
            raise ValueError(f"n_step must be at least 1, got {n_step}")
        self.layout = layout
        self.num_envs = num_envs = layout.num_envs
        self.slots = layout.slots
        self.capacity = layout.transitions
        self.gamma = gamma
        self.n_step = n_step
        self.rows_written = 0  # vector steps ever added; row r is in slot r % slots
        self._priorities = prioritized
        self._tree = SumTree(self.capacity) if prioritized else None
        self._max_priority = 1.0  # already raised to the exponent
        self._priority_updates = 0
        self._valid_count = 0

        self.observations = _store_class(layout)(layout)
        self._rows = self.observations.rows | layout.allocate(_step_columns(layout))
        self._flat = {name: rows.reshape(self.capacity, *rows.shape[2:]) for name, rows in self._rows.items()}
        self._step_shapes = ((num_envs, *layout.observation_shape), (num_envs, *layout.action_shape), (num_envs,))

        self._env_numbers = np.arange(num_envs)
        self._window = np.arange(n_step)[:, None]
        self._discount_powers = np.array([float(gamma) ** steps for steps in range(n_step + 1)])
        self._reward_powers = self._discount_powers[:-1, None]
        self._one_step_discounts = np.array([gamma, 0.0], dtype=np.float32)  # by `terminated`

    @staticmethod
    def predicted_bytes(layout: ReplayLayout, *, prioritized: bool = False) -> int:
        """The `nbytes` of a buffer with this layout, without allocating it."""
        tree = SumTree.predicted_bytes(layout.transitions) if prioritized else 0
        return _store_class(layout).predicted_bytes(layout) + layout.bytes_of(_step_columns(layout)) + tree

    @property
    def nbytes(self) -> int:
        steps = sum(self._rows[name].nbytes for name in _step_columns(self.layout))
        return self.observations.nbytes + steps + (self._tree.nbytes if self._tree else 0)

    def __len__(self) -> int:
        """The number of transitions that can be sampled."""
        return self._valid_count

    @property
    def oldest_row(self) -> int:
        """Number of the oldest vector step in the ring."""
        return max(0, self.rows_written - self.slots)

    @property
    def shards(self) -> Sequence[ReplayBuffer]:
        """The buffers that this one consists of: itself."""
        return (self,)

    @property
    def priority_mass(self) -> float:
        """The sum of all priorities, by which rows are drawn."""
        assert self._tree is not None
        return self._tree.total

    def newest_rows(self, count: int) -> np.ndarray:
        """The flat indices [count, num_envs] of the last `count` vector steps, the oldest first."""
        slots = np.arange(self.rows_written - count, self.rows_written) % self.slots
        rows: np.ndarray = slots[:, None] * self.num_envs + self._env_numbers
        return rows

    def is_valid(self, indices: np.ndarray) -> np.ndarray:
        """Which of these rows can be sampled."""
        valid: np.ndarray = self._flat["valid"][indices]
        return valid

    @property
    def _refreshes_priorities(self) -> bool:
        return self._priorities is not None and self._priorities.refresh_every > 0

    @property
    def _newest_slot(self) -> int:
        return (self.rows_written - 1) % self.slots

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
        """Store one step of every environment. Rows with `valid` False are never sampled or summed."""
        # Without this check, assignment would silently broadcast the values of one environment to all of them.
        if (obs.shape, actions.shape, rewards.shape) != self._step_shapes or next_obs.shape != obs.shape:
            raise ValueError(
                f"replay buffer expects obs, actions, rewards of shapes {self._step_shapes}, got "
                f"{obs.shape}, {actions.shape}, {rewards.shape} and next_obs {next_obs.shape}"
            )
        slot = self.rows_written % self.slots
        rows = self._rows
        row_valid = rows["valid"][slot]
        if self.rows_written >= self.slots:
            self._valid_count -= int(np.count_nonzero(row_valid))
        if lost := self.observations.write(self.rows_written, obs, next_obs):
            self._drop_rows(np.array(lost))
        rows["actions"][slot] = actions
        rows["rewards"][slot] = rewards
        rows["terminated"][slot] = terminated
        rows["truncated"][slot] = truncated
        row_valid[:] = True if valid is None else valid
        self._valid_count += int(np.count_nonzero(row_valid))
        self.rows_written += 1
        self._enter(slot, row_valid)

    def _enter(self, slot: int, row_valid: np.ndarray) -> None:
        """The newest rows can be sampled from here on."""
        if self._tree is not None:
            # A new row enters with the highest priority so far, so that it is sampled soon.
            self._tree.set(slot * self.num_envs + self._env_numbers, self._max_priority * row_valid)

    def _drop_rows(self, indices: np.ndarray) -> None:
        """These rows can no longer be sampled: their observations are gone."""
        valid = self._flat["valid"]
        self._valid_count -= int(np.count_nonzero(valid[indices]))
        valid[indices] = False
        if self._tree is not None:
            self._tree.set(indices, 0.0)

    def cut(self, envs: np.ndarray | None = None) -> None:
        """Truncate the newest row of every environment, or of those in the mask `envs`: no n-step window crosses it."""
        if self.rows_written:
            self._rows["truncated"][self._newest_slot, slice(None) if envs is None else envs] = True

    def sample(
        self, batch_size: int, rng: np.random.Generator, importance_exponent: float | None = None
    ) -> Transitions:
        """Sample with replacement. Only prioritized replay needs `importance_exponent` (beta)."""
        return self._gather(*self._draw(batch_size, rng, importance_exponent))

    def _draw(
        self, batch_size: int, rng: np.random.Generator, importance_exponent: float | None
    ) -> tuple[np.ndarray, torch.Tensor | None]:
        """Rows to sample, and their importance weights if they have priorities."""
        if self._valid_count == 0:
            raise ValueError("the replay buffer has no transitions to sample")
        weights = None
        if self._tree is None:
            indices = self.draw_uniform(batch_size, rng)
        elif importance_exponent is None:
            raise ValueError("prioritized replay needs an importance_exponent to sample")
        else:
            # One draw from each of batch_size equal strata of the priority mass.
            strata = np.arange(batch_size) + rng.random(batch_size)
            indices, priorities = self.find(strata * (self._tree.total / batch_size))
            weights = importance_weights(priorities, importance_exponent)
        return indices, weights

    def find(self, prefix_sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows whose shares of the priority mass contain these sums, and their priorities."""
        assert self._tree is not None
        indices = self._tree.find(prefix_sums)
        return indices, self._tree.get(indices)

    def update_priorities(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of sampled rows, for example to |TD error|. Of a repeated row the last one counts."""
        if self._tree is None or self._priorities is None:
            raise ValueError("update_priorities needs a prioritized replay buffer")
        options = self._priorities
        magnitudes = np.abs(np.asarray(priorities, dtype=np.float64))
        magnitudes = np.maximum(magnitudes, options.floor) if options.floor else magnitudes + options.epsilon
        if not np.isfinite(magnitudes).all():
            raise NumericalError("replay priorities are not finite: lower the learning rate or max_grad_norm")
        raised = magnitudes**options.exponent
        # The row may have been overwritten by an invalid one since it was sampled.
        self._tree.set(indices, raised * self._flat["valid"][indices])
        self._max_priority = max(self._max_priority, float(raised.max(initial=0.0)))
        if options.refresh_every:
            self._priority_updates += 1
            if self._priority_updates % options.refresh_every == 0:
                self._max_priority = self._tree.largest() or 1.0

    def draw_uniform(self, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        """Indices of rows, each valid row with the same chance."""
        stored = min(self.rows_written, self.slots) * self.num_envs
        if self._valid_count == stored:
            return rng.integers(stored, size=batch_size)
        valid = self._flat["valid"]
        if self._valid_count < _MINIMUM_ACCEPTANCE * stored:
            return np.flatnonzero(valid)[rng.integers(self._valid_count, size=batch_size)]
        indices = rng.integers(stored, size=batch_size)
        while not (accepted := valid.take(indices)).all():
            rejected = np.flatnonzero(~accepted)
            indices[rejected] = rng.integers(stored, size=len(rejected))
        return indices

    def rows(self, indices: np.ndarray) -> Transitions:
        """These rows as a batch, with n-step sums over what has come after them."""
        return self._gather(indices, None)

    def _gather(self, indices: np.ndarray, weights: torch.Tensor | None) -> Transitions:
        flat = self._flat
        last = indices
        if self.n_step == 1:
            rewards = flat["rewards"].take(indices)
            discounts = self._one_step_discounts.take(flat["terminated"].take(indices))
        else:
            window = self._windows(indices)
            rewards, terminated = flat["rewards"][window], flat["terminated"][window]
            ends = terminated | flat["truncated"][window]
            rewards, discounts, last = self._sum(indices, window, rewards, terminated, ends)
        obs, next_obs = self.observations.read(indices, last)
        return Transitions(
            obs=torch.from_numpy(obs),
            actions=torch.from_numpy(flat["actions"].take(indices, axis=0)),
            rewards=torch.from_numpy(rewards),
            next_obs=torch.from_numpy(next_obs),
            discounts=torch.from_numpy(discounts),
            weights=weights,
            indices=indices,
        )

    def _windows(self, indices: np.ndarray) -> np.ndarray:
        """The n rows [n, B] from each row on; those after the end of an episode are of no use."""
        windows: np.ndarray = (indices + self._window * self.num_envs) % self.capacity
        return windows

    def _sum(
        self, indices: np.ndarray, window: np.ndarray, rewards: np.ndarray, terminated: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """n-step rewards, discounts and the last row of each window, from the columns of windows [n, B]."""
        included = self._included(indices, window, ends)
        steps = included.sum(axis=0)
        last = (steps - 1, np.arange(len(indices)))
        # Summed in float64. Masked by `where`, because 0 * inf of a row outside the window would be NaN.
        sums = np.where(included, self._reward_powers * rewards, 0.0).sum(axis=0)
        discounts = np.where(terminated[last], 0.0, self._discount_powers[steps])
        return sums.astype(np.float32), discounts.astype(np.float32), window[last]

    def _included(self, indices: np.ndarray, window: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The rows of windows [n, B] that belong to them: those up to the end of what is known of the episode."""
        # A window continues after a row unless the episode ends there, the next row is not a transition,
        # or the row is the newest: the oldest one follows it in the ring.
        rows_after = (self._newest_slot - indices // self.num_envs) % self.slots
        continues = ~ends[:-1]
        continues &= self._flat["valid"][window[1:]]
        continues &= rows_after > np.arange(len(window) - 1)[:, None]
        included = np.ones(window.shape, dtype=np.bool_)
        np.logical_and.accumulate(continues, axis=0, out=included[1:])
        return included

    def state_dict(self) -> dict[str, Any]:
        """Counters for JSON, and an array `priorities` if prioritized; not the rows."""
        state: dict[str, Any] = {**self._description(), "rows_written": self.rows_written}
        if self._tree is not None:
            stored = min(self.rows_written, self.slots) * self.num_envs
            state["max_priority"] = self._max_priority
            state["priorities"] = self._tree.get(np.arange(stored))
            if self._refreshes_priorities:
                state["priority_updates"] = self._priority_updates
        return state | self.observations.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the counters and forget all rows; pass the rows to `import_rows` afterwards."""
        for key, expected in self._description().items():
            if state.get(key) != expected:
                raise ValueError(f"replay state does not fit: {key} is {state.get(key)!r}, not {expected!r}")
        rows_written = int(state["rows_written"])
        if self._tree is not None:
            stored = min(rows_written, self.slots) * self.num_envs
            priorities = np.asarray(state["priorities"])
            if priorities.shape != (stored,) or priorities.dtype != np.float64:
                kind = f"{priorities.dtype} {priorities.shape}"
                raise ValueError(f"replay state does not fit: priorities are {kind}, not float64 ({stored},)")
            if not (np.isfinite(priorities).all() and (priorities >= 0).all()):
                raise ValueError("replay state does not fit: a priority is negative or not finite")
            self._tree = SumTree(self.capacity)
            self._tree.set(np.arange(stored), priorities)
            self._max_priority = float(state["max_priority"])
            if not 0 < self._max_priority < np.inf:
                raise ValueError(f"replay state does not fit: max_priority is {self._max_priority}")
            self._priority_updates = int(state.get("priority_updates", 0))
        self.rows_written = rows_written
        self._rows["valid"][:] = False
        self._valid_count = 0
        self.observations.load_state_dict(state)

    def export_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies [T, N, ...] of the vector steps `start` to `stop`, which must still be in the ring."""
        if not self.oldest_row <= start <= stop <= self.rows_written:
            raise ValueError(
                f"replay rows {start}:{stop} are gone, only {self.oldest_row}:{self.rows_written} are left"
            )
        slots = np.arange(start, stop) % self.slots
        exported = {name: rows[slots] for name, rows in self._rows.items()}
        return exported | self.observations.export_rows(exported)

    def import_rows(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Put exported rows back. Rows that are too old for the ring are skipped: a segment may be half stale."""
        if reason := self.observations.refuses_rows(arrays):
            raise ValueError(f"replay rows do not fit: {reason}")
        counts = set()
        for name, rows in self._rows.items():
            array = arrays.get(name)
            if array is None:
                raise ValueError(f"replay rows do not fit: {name} is missing")
            if array.shape[1:] != rows.shape[1:] or array.dtype != rows.dtype:
                raise ValueError(
                    f"replay rows do not fit: {name} is {array.dtype} {array.shape}, "
                    f"the buffer has {rows.dtype} (rows, {', '.join(map(str, rows.shape[1:]))})"
                )
            counts.add(len(array))
        if len(counts) != 1 or start < 0 or start + max(counts) > self.rows_written:
            raise ValueError(
                f"replay rows do not fit: {sorted(counts)} rows from row {start}, "
                f"but only {self.rows_written} rows were ever written"
            )
        most = self.layout.action_count
        if most is not None and not ((arrays["actions"] >= 0) & (arrays["actions"] < most)).all():
            raise ValueError(f"replay rows do not fit: an action is not one of the {most} of the environment")
        stop = start + counts.pop()
        first = max(start, self.oldest_row)
        slots = np.arange(first, stop) % self.slots
        for name, rows in self._rows.items():
            rows[slots] = arrays[name][first - start :]
        readable = self.observations.import_rows(arrays)
        if readable is not None:
            self._rows["valid"] &= readable
        self._valid_count = int(np.count_nonzero(self._rows["valid"]))

    def _description(self) -> dict[str, Any]:
        """What two buffers must have in common for one to import the rows of the other."""
        observation_shape, observation_dtype = self.layout.observation
        action_shape, action_dtype = self.layout.action
        return {
            "capacity": self.capacity,
            "num_envs": self.num_envs,
            "observation_shape": list(observation_shape),
            "observation_dtype": observation_dtype.name,
            "action_shape": list(action_shape),
            "action_dtype": action_dtype.name,
            "prioritized": self._tree is not None,
            **self.observations.description(),
        }


def _store_class(layout: ReplayLayout) -> type[ObservationStore]:
    if layout.images:
        return MixedStore
    return WholeObservations if layout.stack is None else FrameStore


def _step_columns(layout: ReplayLayout) -> dict[str, Column]:
    """The columns of a step without its observations."""
    flag = ((), np.dtype(np.bool_))
    return {
        "actions": layout.action,
        "rewards": ((), np.dtype(np.float32)),
        "terminated": flag,
        "truncated": flag,
        "valid": flag,
        **dict(layout.extras),
    }
