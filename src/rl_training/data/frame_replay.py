"""Replay for images: every frame is stored once, as uint8, and the stacks are put together again when sampled.

Stacked observations repeat their frames: as (obs, next_obs) a frame of a stack of four is there eight times. Here a
row has two numbers instead, the newest frame of what was seen before and after the step. Whatever the env does, the
bytes that come out are those that went in: an observation that does not continue the one before it (a new game, an env
that does not stack) is stored whole, with all its frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rl_training.data.replay_buffer import Column, PriorityOptions, ReplayBuffer

# A game needs a whole stack at its start beyond one frame per step: 5 % is enough for games of 80 steps with stacks of
# four. With shorter games the oldest rows go a little earlier than `capacity` says.
SPARE_FRAMES = 0.05


class FrameReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` of images [stack * channels, height, width], oldest frame first.

    Frames are numbered per environment from the start of the run; frame n lives in place n % `places`. A row can be
    drawn as long as all its frames are there.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        observation_shape: tuple[int, ...],
        observation_dtype: DTypeLike,
        action_shape: tuple[int, ...],
        action_dtype: DTypeLike,
        *,
        stack: int,
        gamma: float,
        n_step: int = 1,
        prioritized: PriorityOptions | None = None,
    ) -> None:
        self.stack = stack
        self._frame_shape = _frame_shape(observation_shape, observation_dtype, stack)
        super().__init__(
            capacity,
            num_envs,
            observation_shape,
            observation_dtype,
            action_shape,
            action_dtype,
            gamma=gamma,
            n_step=n_step,
            prioritized=prioritized,
        )
        self.places = _places(self.slots, stack)
        self._frames = np.zeros((num_envs, self.places, *self._frame_shape), np.uint8)
        self.frames_written: np.ndarray = np.zeros(num_envs, np.int64)
        self._oldest_whole = np.zeros(num_envs, np.int64)  # number of the oldest row whose frames are all there
        self._offsets = np.arange(1 - stack, 1)

    @classmethod
    def _observation_columns(cls, observation: Column) -> dict[str, Column]:
        number = ((), np.dtype(np.int64))
        return {"frame": number, "next_frame": number}

    @classmethod
    def predicted_bytes(
        cls,
        capacity: int,
        num_envs: int,
        observation_shape: tuple[int, ...],
        observation_dtype: DTypeLike,
        action_shape: tuple[int, ...],
        action_dtype: DTypeLike,
        *,
        prioritized: bool = False,
        stack: int = 1,
    ) -> int:
        """What `nbytes` of such a buffer will be, without allocating it."""
        layout = (observation_shape, observation_dtype, action_shape, action_dtype)
        rows = super().predicted_bytes(capacity, num_envs, *layout, prioritized=prioritized)
        frame = prod(_frame_shape(observation_shape, observation_dtype, stack))
        return rows + num_envs * _places(max(1, capacity // num_envs), stack) * frame

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._frames.nbytes

    def _store_observations(self, slot: int, obs: np.ndarray, next_obs: np.ndarray) -> None:
        shape = (self.num_envs, self.stack, *self._frame_shape)
        stacks, next_stacks = np.asarray(obs).reshape(shape), np.asarray(next_obs).reshape(shape)
        for env in range(self.num_envs):
            if not self._is_newest(env, stacks[env]):
                self._append(env, stacks[env])
            self._rows["frame"][slot, env] = self.frames_written[env] - 1
            follows = np.array_equal(stacks[env, 1:], next_stacks[env, :-1])
            self._append(env, next_stacks[env, -1:] if follows else next_stacks[env])
            self._rows["next_frame"][slot, env] = self.frames_written[env] - 1
            self._drop_broken_rows(env)

    def _is_newest(self, env: int, frames: np.ndarray) -> bool:
        """Whether the newest stack of `env` is this one: an observation is the next_obs of the step before."""
        if self.frames_written[env] < self.stack:
            return False
        return np.array_equal(self._stacks(np.array([env]), self.frames_written[env : env + 1] - 1)[0], frames)

    def _append(self, env: int, frames: np.ndarray) -> None:
        numbers = self.frames_written[env] + np.arange(len(frames))
        self._frames[env, numbers % self.places] = frames
        self.frames_written[env] += len(frames)

    def _drop_broken_rows(self, env: int) -> None:
        """Frames may be overwritten before their row is: then the row can no longer be drawn."""
        first_kept = self.frames_written[env] - self.places
        row = max(int(self._oldest_whole[env]), self.rows_written + 1 - self.slots)
        while row < self.rows_written and self._rows["frame"][row % self.slots, env] - self.stack + 1 < first_kept:
            slot = row % self.slots
            self._valid_count -= int(self._rows["valid"][slot, env])
            self._rows["valid"][slot, env] = False
            if self._tree is not None:
                self._tree.set(np.array([slot * self.num_envs + env]), 0.0)
            row += 1
        self._oldest_whole[env] = row

    def _stacks(self, envs: np.ndarray, newest: np.ndarray) -> np.ndarray:
        """The stacks [B, stack, ...] that end in the frames `newest` of `envs`."""
        return self._frames[envs[:, None], (newest[:, None] + self._offsets) % self.places]

    def _load_observations(self, indices: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        envs, shape = indices % self.num_envs, (len(indices), *self._observation[0])
        before = self._stacks(envs, self._flat["frame"].take(indices))
        after = self._stacks(envs, self._flat["next_frame"].take(last))
        return before.reshape(shape), after.reshape(shape)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"frames_written": self.frames_written.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.frames_written = np.array(state["frames_written"], np.int64)
        self._oldest_whole[:] = 0

    def export_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows as ever, and the frames that they need: `frame_spans` [N, 2] numbers those of each env in `frames`."""
        rows = super().export_rows(start, stop)
        spans = np.zeros((self.num_envs, 2), np.int64)
        frames = [np.zeros((0, *self._frame_shape), np.uint8)]
        if start < stop:
            oldest_kept = self.frames_written - self.places
            spans[:, 1] = rows["next_frame"][-1] + 1
            spans[:, 0] = np.clip(rows["frame"][0] - self.stack + 1, oldest_kept, spans[:, 1])
            for env, (first, end) in enumerate(spans):
                frames.append(self._frames[env, np.arange(first, end) % self.places])
        return rows | {"frames": np.concatenate(frames), "frame_spans": spans}

    def import_rows(self, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        frames, spans = arrays.get("frames"), arrays.get("frame_spans")
        if frames is None or spans is None or frames.shape[1:] != self._frame_shape or len(spans) != self.num_envs:
            raise ValueError(f"replay rows do not fit: frames of {self._frame_shape} are missing")
        if len(frames) != (spans[:, 1] - spans[:, 0]).sum() or (spans[:, 1] > self.frames_written).any():
            raise ValueError("replay rows do not fit: frames are missing, or more than were ever written")
        super().import_rows(start, arrays)
        offset = 0
        for env, (first, end) in enumerate(spans):
            # Those that later frames took the place of must not take it back.
            numbers = np.arange(max(first, self.frames_written[env] - self.places), end)
            self._frames[env, numbers % self.places] = frames[offset + numbers - first]
            offset += end - first
        self._drop_rows_without_frames()

    def _drop_rows_without_frames(self) -> None:
        """A segment has its rows as they were when it was written; some may have lost their frames since."""
        whole = self._rows["frame"] - self.stack + 1 >= self.frames_written - self.places
        self._rows["valid"] &= whole
        self._valid_count = int(np.count_nonzero(self._rows["valid"]))

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"stack": self.stack}


def _frame_shape(observation_shape: tuple[int, ...], observation_dtype: DTypeLike, stack: int) -> tuple[int, ...]:
    channels, *sides = observation_shape
    if np.dtype(observation_dtype) != np.uint8 or stack < 1 or channels % stack:
        raise ValueError(
            f"frame replay takes uint8 images whose channels are a multiple of stack={stack}, "
            f"got {np.dtype(observation_dtype)} {tuple(observation_shape)}"
        )
    return (channels // stack, *sides)


def _places(slots: int, stack: int) -> int:
    """Frames kept per environment; at least those of one row, stored whole twice."""
    return slots + int(SPARE_FRAMES * slots) + 2 * stack
