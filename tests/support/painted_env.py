"""An env of images that show the number of the step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Painted(gym.Env[Any, Any]):
    """Images that say which step it is, in whatever layout is asked for."""

    def __init__(self, shape: tuple[int, ...] = (8, 6, 3), render_mode: str | None = None):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 1
        return self._paint(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        return self._paint(), 1.0, self.elapsed == 9, False, {}

    def _paint(self) -> np.ndarray:
        return np.full(self.observation_space.shape, 10 * self.elapsed, np.uint8)
