"""An environment with one fault at a time, for the checks of `rl-training check-env` and `doctor`.

`sick_envs:Sick-v0` is registered with a time limit, `sick_envs:Endless-v0` without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

LENGTH = 20


class SickEnv(gym.Env[Any, Any]):
    """Sound without a fault: a random vector, a reward of 1, episodes of `LENGTH` steps."""

    made = 0
    on_step: Callable[[], None] = staticmethod(lambda: None)  # called in every step, to move an injected clock

    def __init__(self, fault: str = "", box: bool = False) -> None:
        self.fault = fault
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32) if box else gym.spaces.Discrete(2)
        if fault == "unbounded actions":
            self.action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        elif fault == "text actions":
            self.action_space = gym.spaces.Text(5)
        elif fault == "text observations":
            self.observation_space = gym.spaces.Text(5)
        elif fault == "float image":
            self.observation_space = gym.spaces.Box(0.0, 1.0, (3, 4, 4), np.float32)
        elif fault == "cannot be made":
            raise RuntimeError("no simulator")
        SickEnv.made += 1
        self.number = SickEnv.made
        self.elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=None if self.fault == "ignored seed" else seed)
        self.elapsed = 0
        if self.fault == "reset without info":
            return self._look()
        return self._look(), {}

    def step(self, action: Any) -> Any:
        SickEnv.on_step()
        self.elapsed += 1
        reward: Any = 1.0
        info: Any = {"elapsed": self.elapsed}
        observation: Any = self._look()
        ended: Any = self.elapsed >= LENGTH and self.fault != "no end"
        fault = self.fault if self.elapsed == 7 else ""
        if fault == "NaN reward":
            reward = float("nan")
        elif fault == "list reward":
            reward = [1.0, 2.0]
        elif fault == "array reward":
            reward = np.array(1.0)
        elif fault == "lying shape":
            observation = np.zeros(4, np.float32)
        elif fault == "lying bounds":
            observation = np.array([0.0, 3.5, 0.0], np.float32)
        elif fault == "NaN observation":
            observation = np.full(3, np.nan, np.float32)
        elif fault == "info is None":
            info = None
        elif fault == "exception":
            raise ZeroDivisionError("the pole has no mass")
        elif fault == "old step":
            return observation, reward, ended, info
        elif fault == "hidden randomness":
            observation = np.full(3, 1.0 / (1 + self.number), np.float32)
        elif fault == "integer flag":
            ended = 0
        elif fault == "changing info" and self.number % 2:
            info = {"elapsed": "seven"}
        return observation, reward, ended, False, info

    def _look(self) -> Any:
        shape = self.observation_space.shape or ()
        return self.np_random.uniform(0.0, 1.0, shape).astype(np.float32)


for name, limit in (("Sick-v0", 100), ("Endless-v0", None)):
    if name not in gym.registry:
        gym.register(name, entry_point=SickEnv, max_episode_steps=limit, disable_env_checker=True)
