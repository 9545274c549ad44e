"""An env whose episodes never end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class EndlessEnv(gym.Env[Any, Any]):
    """Pays a reward of 1 per step and never ends an episode; raises at step `fail_at`."""

    def __init__(self, fail_at: int = -1) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.fail_at, self.steps = fail_at, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.fail_at:
            raise ZeroDivisionError("the wheel came off")
        return np.zeros(2, np.float32), 1.0, False, False, {}
