"""The shape of a replay buffer: how many transitions of what it stores."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike

Column = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of one value per environment and step."""


@dataclass(frozen=True, slots=True)
class ReplayLayout:
    """What a replay buffer stores, known before anything is allocated.

    `stack` is for images [stack * channels, height, width]: each frame is then stored once (see frame_store.py). None
    stores observations whole.
    """

    capacity: int
    num_envs: int
    observation_shape: tuple[int, ...]
    observation_dtype: DTypeLike
    action_shape: tuple[int, ...]
    action_dtype: DTypeLike
    stack: int | None = None
    images: tuple[tuple[int, int, tuple[int, ...]], ...] = ()  # first byte, end and shape of images in rows of bytes
    extras: tuple[tuple[str, Column], ...] = ()  # further columns of a step, by name
    action_count: int | None = None  # of a discrete space: stored actions are below it

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.num_envs < 1:
            raise ValueError(
                f"capacity and num_envs must be at least 1, got capacity={self.capacity}, num_envs={self.num_envs}"
            )
        if self.stack is None:
            return
        if np.dtype(self.observation_dtype) != np.uint8 or self.stack < 1 or self.observation_shape[0] % self.stack:
            raise ValueError(
                f"frame replay takes uint8 images whose channels are a multiple of stack={self.stack}, "
                f"got {np.dtype(self.observation_dtype)} {tuple(self.observation_shape)}"
            )

    @property
    def slots(self) -> int:
        """Vector steps in the ring."""
        return max(1, self.capacity // self.num_envs)

    @property
    def transitions(self) -> int:
        """Transitions in the ring: `capacity`, rounded to whole vector steps."""
        return self.slots * self.num_envs

    @property
    def observation(self) -> Column:
        """An observation as stored: images stay uint8, everything else is float32."""
        dtype = np.uint8 if np.dtype(self.observation_dtype) == np.uint8 else np.float32
        return tuple(self.observation_shape), np.dtype(dtype)

    @property
    def action(self) -> Column:
        """An action as stored: float32 or int64."""
        dtype = np.float32 if np.dtype(self.action_dtype).kind == "f" else np.int64
        return tuple(self.action_shape), np.dtype(dtype)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """One frame of a stacked image."""
        assert self.stack is not None
        channels, *sides = self.observation_shape
        return (channels // self.stack, *sides)

    def bytes_of(self, columns: dict[str, Column]) -> int:
        """Memory that `allocate` takes for these columns."""
        return self.transitions * sum(prod(shape) * dtype.itemsize for shape, dtype in columns.values())

    def allocate(self, columns: dict[str, Column]) -> dict[str, np.ndarray]:
        """Zeroed arrays [slots, num_envs, ...] for these columns."""
        return {
            name: np.zeros((self.slots, self.num_envs, *shape), dtype=dtype) for name, (shape, dtype) in columns.items()
        }
