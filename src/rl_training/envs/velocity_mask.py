"""Partially observable envs: velocities are removed from observations, so that a policy needs memory.

Selected by `env_kwargs: {mask_velocity: true}`, for one env and for every vector backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from rl_training.errors import EnvError

MASK_KEY = "mask_velocity"
# The parts of an observation that stay: positions, angles, contacts.
VISIBLE: dict[str, list[int]] = {
    "CartPole": [0, 2],  # of position, velocity, angle, angular velocity
    "Pendulum": [0, 1],  # of cos, sin, angular velocity
    "LunarLander": [0, 1, 4, 6, 7],  # of x, y, their velocities, angle, angular velocity, two legs
}


def mask_option(env_kwargs: Mapping[str, Any]) -> bool:
    """Whether `env_kwargs` ask for velocities to be masked."""
    option = env_kwargs.get(MASK_KEY, False)
    if not isinstance(option, bool):
        raise EnvError(f"env_kwargs.{MASK_KEY}: {option!r} is not valid, expected true or false")
    return option


class MaskVelocity(gym.ObservationWrapper[np.ndarray, Any, np.ndarray]):
    """One env without its velocities."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.visible = _visible(env)
        self.observation_space = _masked(env.observation_space, self.visible)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self.visible]


class MaskVelocityVector(VectorWrapper):
    """A vector env without its velocities, in the final observations too."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.visible = _visible(env)
        self.single_observation_space = _masked(env.single_observation_space, self.visible)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observations, infos = self.env.reset(**options)
        return observations[:, self.visible], infos

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            infos = {**infos, "final_obs": np.stack(infos["final_obs"])[:, self.visible]}
        return observations[:, self.visible], rewards, terminated, truncated, infos


def _visible(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> list[int]:
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    family = name.rpartition("-v")[0]
    if family not in VISIBLE:
        raise EnvError(
            f"env_kwargs.{MASK_KEY}: the velocities of {name} are not known, only those of {', '.join(VISIBLE)}: "
            f"leave it out, or wrap the env yourself"
        )
    return VISIBLE[family]


def _masked(space: gym.Space[Any], visible: list[int]) -> gym.spaces.Box:
    assert isinstance(space, gym.spaces.Box)
    return gym.spaces.Box(space.low[visible], space.high[visible], dtype=space.dtype.type)
