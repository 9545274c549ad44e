"""Small tasks with a known best return, which can be learned only with the feature that they are named after.

======================= ====================================== =================================================
task                    best return                            exposes
======================= ====================================== =================================================
ForbiddenActionsProbe   `length`, the longest episode          action masks that are lost or belong elsewhere
======================= ====================================== =================================================
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rl_training.envs.spaces import MASK_KEY

MaskPlace = Literal["key", "info", "method", "none"]


class ForbiddenActionsProbe(gym.Env[Any, Any]):
    """The observation names, one-hot, the action that pays 1. In every step, `forbidden` other actions are masked.

    After `length` steps a time limit ends the episode, so the best return is `length`. A policy that guesses among the
    allowed actions gets `length / (actions - forbidden)`. To learn each action by its name takes `actions` as many
    examples, so within a few thousand steps only masks make the task easy. `invalid_actions` counts the masked actions
    that were taken since the env was made; `info` has it too. `masks` says where the env shows its mask: as a key of
    the observation, in `info`, by the method `action_masks`, or nowhere.
    """

    def __init__(self, actions: int = 70, forbidden: int = 55, length: int = 100, *, masks: MaskPlace = "key") -> None:
        if not 0 <= forbidden < actions:
            raise ValueError(f"forbidden must be at least 0 and less than actions, got {forbidden} of {actions}")
        self.actions, self.forbidden, self.length, self.masks = actions, forbidden, length, masks
        self.invalid_actions = self.elapsed = 0
        self.action_space = gym.spaces.Discrete(actions)
        shown: gym.Space[Any] = gym.spaces.Box(0.0, 1.0, (actions,), np.float32)
        self.observation_space = shown
        if masks == "key":
            self.observation_space = gym.spaces.Dict({"shown": shown, MASK_KEY: gym.spaces.MultiBinary(actions)})
        if masks == "method":
            self.action_masks = lambda: self.mask.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        return self._next_state()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        self.invalid_actions += int(not self.mask[action])
        reward = float(action == self.named)
        observation, info = self._next_state()
        return observation, reward, False, self.elapsed >= self.length, info

    def _next_state(self) -> tuple[Any, dict[str, Any]]:
        self.named = int(self.np_random.integers(self.actions))
        others = np.delete(np.arange(self.actions), self.named)
        self.mask = np.ones(self.actions, np.int8)
        self.mask[self.np_random.choice(others, self.forbidden, replace=False)] = 0
        shown = np.zeros(self.actions, np.float32)
        shown[self.named] = 1.0
        info: dict[str, Any] = {"invalid_actions": self.invalid_actions}
        if self.masks == "info":
            info[MASK_KEY] = self.mask.copy()
        return ({"shown": shown, MASK_KEY: self.mask.copy()} if self.masks == "key" else shown), info
