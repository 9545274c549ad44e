"""Replay of trajectories: windows of one environment within one episode, for learners that look along time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import Column, ReplayLayout

MEMORY = "memory"
MAX_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """A window is up to `burn_in` steps that only refresh the memory, then up to `steps` to learn from."""

    steps: int
    burn_in: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.burn_in < 0:
            raise ValueError(f"a window needs steps >= 1 and burn_in >= 0, got {self.steps} and {self.burn_in}")


@dataclass(slots=True)
class Windows:
    """A batch of S windows side by side, each within one episode of one environment.

    Time comes first. The steps to learn from start at time `burn_steps` in every window: L of them, padded at the end,
    `mask` says which are real. Shorter burn-ins are padded at their beginning: window s has its last `burn_in[s]` steps
    before time `burn_steps`. `obs` has one more row of time: behind its last step a window has the observation that
    really followed.
    """

    obs: Tensor  # [burn_steps + L + 1, S, ...]
    actions: Tensor  # [L, S, ...]
    rewards: Tensor  # [L, S]
    discounts: Tensor  # [L, S]: gamma, or 0 after termination; a truncated episode keeps gamma
    mask: Tensor  # [L, S]: False is padding
    burn_in: Tensor  # [S]
    memory: Tensor | None = None  # [S, ...]: before the first step of the window, burn-in included
    extras: dict[str, Tensor] = field(default_factory=dict)  # [L, S, ...]: what `act` said about each step
    weights: Tensor | None = None  # [S], importance weights of prioritized replay
    indices: np.ndarray | None = None  # [S], for `update_priorities`

    def __len__(self) -> int:
        """The number of windows."""
        return self.rewards.shape[1]

    @property
    def burn_steps(self) -> int:
        return self.obs.shape[0] - 1 - self.rewards.shape[0]

    @property
    def lengths(self) -> Tensor:
        """Steps to learn from in each window, [S]."""
        return self.mask.sum(0)

    def to(self, device: torch.device | str) -> Windows:
        """The same batch on `device`; the batch itself if it is already there."""
        if self.rewards.device == torch.device(device):
            return self
        names = ("obs", "actions", "rewards", "discounts", "mask", "burn_in")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in names}
        moved["memory"] = None if self.memory is None else self.memory.to(device)
        moved["weights"] = None if self.weights is None else self.weights.to(device)
        moved["extras"] = {name: value.to(device) for name, value in self.extras.items()}
        return replace(self, **moved)


def window_priorities(errors: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """0.9 max + 0.1 mean of |error| over the steps of each window.   [L, S] -> [S]"""
    sizes = np.where(mask, np.abs(errors), 0.0)
    means = sizes.sum(0) / mask.sum(0)
    priorities: np.ndarray = MAX_SHARE * sizes.max(0) + (1.0 - MAX_SHARE) * means
    return priorities


class TrajectoryReplay(ReplayBuffer):
    """A replay buffer that samples windows.

    The rule is that of `RecurrentRolloutBuffer`: the steps of one environment are cut where an episode starts and,
    counted from there, after every `window.steps` steps. So every transition is learned from in exactly one window.
    Before these steps a window has up to `window.burn_in` steps of the same episode. A window is named by its first
    step to learn from. It can be sampled as soon as it cannot grow any more.

    `age` counts the steps of an episode before each row. `memory` is what the policy remembered before it acted; at the
    start of an episode it is empty.
    """

    def __init__(
        self,
        layout: ReplayLayout,
        window: WindowOptions,
        *,
        gamma: float,
        prioritized: PriorityOptions | None = None,
    ) -> None:
        super().__init__(layout, gamma=gamma, prioritized=prioritized)
        self.window = window
        self.extra_names = [name for name, _ in layout.extras if name not in _OWN_COLUMNS]
        self._open = np.full(self.num_envs, -1)  # the window that each env is in, or -1

    @staticmethod
    def layout_with(layout: ReplayLayout, columns: Mapping[str, Column]) -> ReplayLayout:
        """The layout of a trajectory replay that also keeps `columns`, for example the memory."""
        return replace(layout, extras=(*_OWN_COLUMNS.items(), *columns.items()))

    def __len__(self) -> int:
        """The number of windows that can be sampled."""
        return int(np.count_nonzero(self._flat["complete"]))

    def add(
        self,
        obs: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        valid: np.ndarray | None = None,
        extras: Mapping[str, np.ndarray | None] | None = None,
    ) -> None:
        """Store one step of every environment. An extra that is None is zero, such as the memory of a new run."""
        slot, rows = self.rows_written % self.slots, self._rows
        ages = self._next_ages()
        self._lose(slot * self.num_envs + self._env_numbers)
        super().add(obs, actions, rewards, next_obs, terminated, truncated, valid)
        rows["age"][slot] = ages
        for name in self.extra_names:
            value = None if extras is None else extras.get(name)
            rows[name][slot] = 0 if value is None else value
        if MEMORY in rows:
            rows[MEMORY][slot][ages == 0] = 0.0
        valid_rows = rows["valid"][slot]
        self._complete(~valid_rows)  # what came before a row that is no transition cannot continue
        first = valid_rows & (ages % self.window.steps == 0)
        self._open[first] = slot * self.num_envs + self._env_numbers[first]
        full = (ages + 1) % self.window.steps == 0
        self._complete(full | rows["terminated"][slot] | rows["truncated"][slot])

    def cut(self, envs: np.ndarray | None = None) -> None:
        super().cut(envs)
        self._complete(np.ones(self.num_envs, bool) if envs is None else np.asarray(envs, bool))

    def sample(self, batch_size: int, rng: np.random.Generator, importance_exponent: float | None = None) -> Any:
        """`Windows`, drawn with replacement."""
        return self.windows(*self._draw(batch_size, rng, importance_exponent))

    def newest(self, steps: int) -> Windows:
        """All that the last `steps` vector steps brought, as windows of up to `steps` steps without burn-in."""
        steps = min(steps, self.rows_written, self.slots)
        slots = np.arange(self.rows_written - steps, self.rows_written) % self.slots
        first = self._rows["age"][slots] == 0
        first[0] = True
        times, envs = np.nonzero(first & self._rows["valid"][slots])
        return self._gather_windows(slots[times] * self.num_envs + envs, None, WindowOptions(steps))

    def windows(self, starts: np.ndarray, weights: Tensor | None = None) -> Windows:
        """The windows that are named by their first rows to learn from, padded to the longest."""
        return self._gather_windows(starts, weights, self.window)

    def _gather_windows(self, starts: np.ndarray, weights: Tensor | None, window: WindowOptions) -> Windows:
        flat, count = self._flat, np.arange(len(starts))
        rows = (starts + np.arange(window.steps)[:, None] * self.num_envs) % self.capacity
        included = self._included(starts, rows, flat["terminated"][rows] | flat["truncated"][rows])
        lengths = included.sum(0)
        rows, included = rows[: lengths.max()], included[: lengths.max()]
        rows = np.where(included, rows, starts)  # padding shows a row that exists
        burn_in, burn_rows = self._burn_in(starts, window.burn_in)
        last = rows[lengths - 1, count]
        before, after = self.observations.read(np.concatenate([burn_rows, rows]).ravel(), last)
        steps = len(burn_rows) + len(rows)
        obs = np.empty((steps + 1, len(starts), *before.shape[1:]), before.dtype)
        obs[:-1] = before.reshape(steps, len(starts), *before.shape[1:])
        obs[-1] = after
        obs[len(burn_rows) + lengths, count] = after
        first = (starts - burn_in * self.num_envs) % self.capacity
        return Windows(
            obs=torch.from_numpy(obs),
            actions=torch.from_numpy(flat["actions"][rows]),
            rewards=torch.from_numpy(np.where(included, flat["rewards"][rows], np.float32(0.0))),
            discounts=torch.from_numpy(self._one_step_discounts[flat["terminated"][rows].astype(np.int64)]),
            mask=torch.from_numpy(included),
            burn_in=torch.from_numpy(burn_in),
            memory=torch.from_numpy(flat[MEMORY][first]) if MEMORY in flat else None,
            extras={name: torch.from_numpy(flat[name][rows]) for name in self.extra_names if name != MEMORY},
            weights=weights,
            indices=starts,
        )

    def _burn_in(self, starts: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """How many steps [S] precede each window in its episode and in the ring, up to `most`, and their rows."""
        steps = np.arange(1, most + 1)[:, None]
        rows = (starts - steps * self.num_envs) % self.capacity
        rows_after = (self._newest_slot - starts // self.num_envs) % self.slots
        stored_before = self.rows_written - 1 - rows_after - self.oldest_row
        usable = (steps <= self._flat["age"][starts]) & (steps <= stored_before) & self._flat["valid"][rows]
        burn_in: np.ndarray = np.logical_and.accumulate(usable, axis=0).sum(0)
        rows = np.where(steps <= burn_in, rows, starts)
        return burn_in, rows[: burn_in.max(initial=0)][::-1]

    def _next_ages(self) -> np.ndarray:
        """How many steps of its episode come before the next row of each env."""
        if not self.rows_written:
            return np.zeros(self.num_envs, np.int32)
        rows, newest = self._rows, self._newest_slot
        continues = rows["valid"][newest] & ~(rows["terminated"][newest] | rows["truncated"][newest])
        ages: np.ndarray = np.where(continues, rows["age"][newest] + 1, 0)
        return ages

    def _complete(self, envs: np.ndarray) -> None:
        """The open windows of the envs in this mask cannot grow any more: they can be sampled."""
        starts = self._open[envs & (self._open >= 0)]
        if len(starts):
            self._flat["complete"][starts] = True
            if self._tree is not None:
                self._tree.set(starts, self._max_priority)
            self._open[envs] = -1

    def _enter(self, slot: int, row_valid: np.ndarray) -> None:
        """Nothing: a window is sampled when it is complete."""

    def _lose(self, indices: np.ndarray) -> None:
        """No window starts in these rows any more."""
        self._open[np.isin(self._open, indices)] = -1
        lost = indices[self._flat["complete"][indices]]
        if len(lost):
            self._flat["complete"][lost] = False
            if self._tree is not None:
                self._tree.set(lost, 0.0)

    def _drop_rows(self, indices: np.ndarray) -> None:
        super()._drop_rows(indices)
        self._lose(indices)

    def _draw(
        self, batch_size: int, rng: np.random.Generator, importance_exponent: float | None
    ) -> tuple[np.ndarray, Tensor | None]:
        if not len(self):
            raise ValueError("the trajectory replay has no complete window to sample")
        return super()._draw(batch_size, rng, importance_exponent)

    def draw_uniform(self, batch_size: int, rng: np.random.Generator) -> np.ndarray:
        starts = np.flatnonzero(self._flat["complete"])
        return starts[rng.integers(len(starts), size=batch_size)]

    def update_priorities(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of sampled windows. A window that was overwritten since then gets none."""
        kept = self._flat["complete"][indices]
        super().update_priorities(indices[kept], np.asarray(priorities)[kept])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._flat["complete"][:] = False
        self._open[:] = -1  # a checkpoint cuts all episodes

    def import_rows(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        super().import_rows(start, arrays)
        self._rows["complete"] &= self._rows["valid"]

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"window_steps": self.window.steps}


_OWN_COLUMNS: dict[str, Column] = {"age": ((), np.dtype(np.int32)), "complete": ((), np.dtype(np.bool_))}
