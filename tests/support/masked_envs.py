"""Envs that raise if an action is taken that they do not allow, and spaces with masks."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.envs.action_mask import ActionMaskVector
from rl_training.envs.spaces import Spaces

ACTION_SPACES: dict[str, gym.Space[Any]] = {
    "discrete": gym.spaces.Discrete(5, start=2),
    "multi_discrete": gym.spaces.MultiDiscrete([3, 2, 4]),
    "multi_binary": gym.spaces.MultiBinary(3),
}
SIZES = {"discrete": (5,), "multi_discrete": (3, 2, 4), "multi_binary": (2, 2, 2)}


def masked_spaces(kind: str = "discrete") -> Spaces:
    observations = {
        "action_mask": gym.spaces.MultiBinary(sum(SIZES[kind])),
        "seen": gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
    }
    return Spaces(gym.spaces.Dict(observations), ACTION_SPACES[kind])


def random_masks(rng: np.random.Generator, rows: int, kind: str = "discrete") -> np.ndarray:
    """Masks with at least one allowed action of each choice."""
    parts = []
    for size in SIZES[kind]:
        part = rng.random((rows, size)) < 0.4
        part[np.arange(rows), rng.integers(size, size=rows)] = True
        parts.append(part)
    return np.concatenate(parts, 1)


def random_rows(rows: int, kind: str = "discrete", seed: int = 0) -> np.ndarray:
    """Encoded observations of `masked_spaces`."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(rows, 3))
    return np.concatenate([seen, random_masks(rng, rows, kind)], 1).astype(np.float32)


class Strict(gym.Env[Any, Any]):
    """Random observations and masks. Episodes end both ways; a terminal state allows nothing.

    An action that is not allowed raises. `masks` is `key`, `info` or `method`, as in `ForbiddenActionsProbe`.
    """

    def __init__(self, kind: str = "discrete", masks: str = "key") -> None:
        self.kind, self.masks, self.action_space = kind, masks, ACTION_SPACES[kind]
        seen = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space: gym.Space[Any] = seen
        if masks == "key":
            size = gym.spaces.MultiBinary(sum(SIZES[kind]))
            self.observation_space = gym.spaces.Dict({"seen": seen, "action_mask": size})
        if masks == "method":
            self.action_masks = lambda: self.mask

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._look(terminated=False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first = 2 if self.kind == "discrete" else 0
        starts = np.cumsum((0, *SIZES[self.kind][:-1]))
        if not self.mask[np.ravel(action) - first + starts].all():
            raise RuntimeError(f"the action {action} is not allowed")
        self.elapsed += 1
        terminated = bool(self.np_random.random() < 0.15)
        observation, info = self._look(terminated)
        return observation, float(self.np_random.random()), terminated, self.elapsed >= 12, info

    def _look(self, terminated: bool) -> tuple[Any, dict[str, Any]]:
        self.mask = random_masks(self.np_random, 1, self.kind)[0]
        if terminated:
            self.mask[:] = False
        seen = self.np_random.normal(size=3).astype(np.float32)
        info = {"action_mask": self.mask.copy()} if self.masks == "info" else {}
        return ({"seen": seen, "action_mask": self.mask.astype(np.int8)} if self.masks == "key" else seen), info


def strict_vector(num_envs: int, mode: AutoresetMode, masks: str = "key") -> Any:
    """Gymnasium's own vector env, as a caller might pass it."""
    envs = SyncVectorEnv([lambda: Strict(masks=masks)] * num_envs, autoreset_mode=mode)
    return ActionMaskVector(envs) if masks == "info" else envs
