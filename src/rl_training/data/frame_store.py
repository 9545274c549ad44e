"""Image observations for replay: every frame is stored once, as uint8, and stacks are rebuilt when sampled.

Stacked observations repeat their frames: as (obs, next_obs), a frame of a stack of four is stored eight times. Here a
row has two numbers instead: the newest frame of the observation before the step, and of the one after it. Whatever the
env does, the bytes that come out are the bytes that went in: an observation that does not continue the one before it
(a new game, an env that does not stack) is stored whole, with all its frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from rl_training.data.observation_store import ObservationStore
from rl_training.data.replay_layout import Column, ReplayLayout

# The start of a game needs a whole stack on top of one frame per step: 5 % is enough for games of 80 steps with stacks
# of four. With shorter games, the oldest rows are lost a little before `capacity` is reached.
SPARE_FRAMES = 0.05


class FrameStore(ObservationStore):
    """Images [stack * channels, height, width], oldest frame first.

    Frames are numbered per environment from the start of the run; frame n is in place n % `places`. A row can be
    sampled as long as all its frames are stored.
    """

    def __init__(self, layout: ReplayLayout) -> None:
        assert layout.stack is not None
        super().__init__(layout)
        self.stack = layout.stack
        self.places = _places(layout)
        self.frames_written: np.ndarray = np.zeros(layout.num_envs, np.int64)
        self._num_envs, self._slots = layout.num_envs, layout.slots
        self._observation_shape, self._frame_shape = layout.observation_shape, layout.frame_shape
        self._frames = np.zeros((layout.num_envs, self.places, *layout.frame_shape), np.uint8)
        self._frame, self._next_frame = self.rows["frame"], self.rows["next_frame"]
        self._flat_frame, self._flat_next_frame = self._frame.reshape(-1), self._next_frame.reshape(-1)
        self._oldest_whole = np.zeros(layout.num_envs, np.int64)  # number of the oldest row that has all its frames
        self._offsets = np.arange(1 - self.stack, 1)

    @staticmethod
    def columns(layout: ReplayLayout) -> dict[str, Column]:
        number = ((), np.dtype(np.int64))
        return {"frame": number, "next_frame": number}

    @classmethod
    def predicted_bytes(cls, layout: ReplayLayout) -> int:
        frames = layout.num_envs * _places(layout) * prod(layout.frame_shape)
        return super().predicted_bytes(layout) + frames

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._frames.nbytes

    def write(self, row: int, obs: np.ndarray, next_obs: np.ndarray) -> Sequence[int]:
        shape, slot = (self._num_envs, self.stack, *self._frame_shape), row % self._slots
        stacks, next_stacks = np.asarray(obs).reshape(shape), np.asarray(next_obs).reshape(shape)
        lost: list[int] = []
        for env in range(self._num_envs):
            if not self._is_newest(env, stacks[env]):
                self._append(env, stacks[env])
            self._frame[slot, env] = self.frames_written[env] - 1
            follows = np.array_equal(stacks[env, 1:], next_stacks[env, :-1])
            self._append(env, next_stacks[env, -1:] if follows else next_stacks[env])
            self._next_frame[slot, env] = self.frames_written[env] - 1
            lost += self._overwritten_rows(env, row)
        return lost

    def _is_newest(self, env: int, frames: np.ndarray) -> bool:
        """Whether the newest stack of `env` is this one: an observation is the next_obs of the step before."""
        if self.frames_written[env] < self.stack:
            return False
        return np.array_equal(self._stacks(np.array([env]), self.frames_written[env : env + 1] - 1)[0], frames)

    def _append(self, env: int, frames: np.ndarray) -> None:
        numbers = self.frames_written[env] + np.arange(len(frames))
        self._frames[env, numbers % self.places] = frames
        self.frames_written[env] += len(frames)

    def _overwritten_rows(self, env: int, newest_row: int) -> list[int]:
        """Flat indices of rows of `env` that lost a frame. Frames may be overwritten before their row is."""
        first_kept = self.frames_written[env] - self.places
        row = max(int(self._oldest_whole[env]), newest_row + 1 - self._slots)
        lost = []
        while row < newest_row and self._frame[row % self._slots, env] - self.stack + 1 < first_kept:
            lost.append(row % self._slots * self._num_envs + env)
            row += 1
        self._oldest_whole[env] = row
        return lost

    def _stacks(self, envs: np.ndarray, newest: np.ndarray) -> np.ndarray:
        """The stacks [B, stack, ...] that end in the frames `newest` of `envs`."""
        stacks: np.ndarray = self._frames[envs[:, None], (newest[:, None] + self._offsets) % self.places]
        return stacks

    def read(self, indices: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = self._observation_shape
        before = self._stacks(indices % self._num_envs, self._flat_frame.take(indices))
        after = self._stacks(last % self._num_envs, self._flat_next_frame.take(last))
        return before.reshape(len(indices), *shape), after.reshape(len(last), *shape)

    def description(self) -> dict[str, Any]:
        return {"stack": self.stack}

    def state_dict(self) -> dict[str, Any]:
        return {"frames_written": self.frames_written.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.frames_written = np.array(state["frames_written"], np.int64)
        self._oldest_whole[:] = 0

    def export_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The frames of these rows; `frame_spans` [N, 2] has the numbers of each env's first and last one + 1."""
        spans = np.zeros((self._num_envs, 2), np.int64)
        frames = [np.zeros((0, *self._frame_shape), np.uint8)]
        if len(rows["frame"]):
            oldest_kept = self.frames_written - self.places
            spans[:, 1] = rows["next_frame"][-1] + 1
            spans[:, 0] = np.clip(rows["frame"][0] - self.stack + 1, oldest_kept, spans[:, 1])
            for env, (first, end) in enumerate(spans):
                frames.append(self._frames[env, np.arange(first, end) % self.places])
        return {"frames": np.concatenate(frames), "frame_spans": spans}

    def refuses_rows(self, arrays: Mapping[str, np.ndarray]) -> str | None:
        frames, spans = arrays.get("frames"), arrays.get("frame_spans")
        if frames is None or spans is None or frames.shape[1:] != self._frame_shape or len(spans) != self._num_envs:
            return f"frames of {self._frame_shape} are missing"
        if len(frames) != (spans[:, 1] - spans[:, 0]).sum() or (spans[:, 1] > self.frames_written).any():
            return "frames are missing, or more than were ever written"
        return None

    def import_rows(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
        frames, offset = arrays["frames"], 0
        for env, (first, end) in enumerate(arrays["frame_spans"]):
            # A frame whose place a later frame has taken must not overwrite it.
            numbers = np.arange(max(first, self.frames_written[env] - self.places), end)
            self._frames[env, numbers % self.places] = frames[offset + numbers - first]
            offset += end - first
        # The rows are as they were when they were exported; some may have lost their frames since.
        readable: np.ndarray = self._frame - self.stack + 1 >= self.frames_written - self.places
        return readable


def _places(layout: ReplayLayout) -> int:
    """Frames stored per environment; at least those of one row, stored whole twice."""
    assert layout.stack is not None
    return layout.slots + int(SPARE_FRAMES * layout.slots) + 2 * layout.stack
