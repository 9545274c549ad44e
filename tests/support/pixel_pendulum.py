"""Pendulum seen as two frames of 40 x 40 pixels, drawn with NumPy: a probe of learning from images alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

SIDE = 40


class PixelPendulum(gym.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """The rod of Pendulum-v1 in the frame before and in this one, from which the velocity can be read."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.observation_space = gym.spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)
        steps = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
        self._across, self._down = np.meshgrid(steps, steps)
        self._frame: np.ndarray | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._frame = None
        return super().reset(seed=seed, options=options)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        before, self._frame = self._frame, self._drawn(float(observation[0]), float(observation[1]))
        return np.stack([self._frame if before is None else before, self._frame])

    def _drawn(self, cosine: float, sine: float) -> np.ndarray:
        along = -sine * self._across - cosine * self._down  # upright is up
        aside = cosine * self._across - sine * self._down
        distance = np.hypot(aside, np.maximum(np.maximum(-along, along - 0.45 * SIDE), 0.0))
        return (np.clip(3.0 - distance, 0.0, 1.0) * 255).astype(np.uint8)
