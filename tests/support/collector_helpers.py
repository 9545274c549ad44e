"""A collector on a learner that counts, and a vector env whose steps are scripted."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.algorithms.common.learner import Action
from rl_training.algorithms.common.streams import Streams
from rl_training.envs.spaces import Spaces
from rl_training.runtime.collection.collector import Collector


class CountingLearner:
    """Always action 0 on the policy's scale; remembers what it was shown, and counts in its memory."""

    def __init__(self, spaces: Spaces):
        self.spaces = spaces
        self.env_steps = 0
        self.seen: list[np.ndarray] = []
        self.starts: list[np.ndarray] = []
        self.memories: list[Any] = []

    def remember(self, obs: np.ndarray, episode_starts: np.ndarray, memory: Any) -> Any:
        return memory

    def act(self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray, memory: Any) -> Action:
        assert explore
        self.seen.append(obs.copy())
        self.starts.append(episode_starts.copy())
        self.memories.append(memory)
        calls = 1 if memory is None else memory + 1
        dtype = np.float32 if self.spaces.action_kind == "box" else np.int64
        actions = np.zeros((len(obs), *self.spaces.action_shape), dtype)
        return Action(actions, {"log_probs": np.full(len(obs), -float(calls), np.float32)}, calls)


def collector_of(envs: VectorEnv, seed: int = 0) -> tuple[Collector, CountingLearner]:
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    learner = CountingLearner(spaces)
    return Collector(envs, spaces, learner, Streams(seed)), learner  # type: ignore[arg-type]


class Scripted(VectorEnv):
    """Two envs that reset in the same step; what a step returns is handed in, in one array that is reused."""

    def __init__(self, mode: Any = AutoresetMode.SAME_STEP, **first: Any):
        self.num_envs = 2
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.shared = np.zeros((2, 1), np.float32)
        self.first = first.get("obs", [[1.0], [1.0]])
        self.outcomes: list[tuple[Any, Any, Any, Any, dict[str, Any]]] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.shared[:] = self.first
        return self.shared, {}

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = self.outcomes.pop(0)
        self.shared[:] = obs
        return self.shared, np.array(rewards, float), np.array(terminated), np.array(truncated), infos
