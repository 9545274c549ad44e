"""Arrays that the supervisor and the workers of the `async` backend share, in memory without a name that could leak."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import gymnasium as gym
import numpy as np

ALIGNMENT = 64


class SharedBlock:
    """Observations, actions and rewards of `num_envs` envs. Processes with the same descriptor share them."""

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        num_envs: int,
        descriptor: int | None = None,
    ):
        self.num_envs = num_envs
        self._size = 0
        observations, actions = self._place(observation_space), self._place(action_space)
        rewards = self._place(gym.spaces.Box(-np.inf, np.inf, (), np.float64))
        self.descriptor = new_descriptor() if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, self._size)
        self._memory = mmap.mmap(self.descriptor, self._size)
        self._observations = self._view(observations)
        self.actions: np.ndarray = self._view(actions)
        self.rewards: np.ndarray = self._view(rewards)

    def _place(self, space: gym.Space[Any]) -> Any:
        """The offset, shape and dtype of each array of a (nested) space."""
        if isinstance(space, gym.spaces.Dict):
            return {key: self._place(inner) for key, inner in space.spaces.items()}
        if isinstance(space, gym.spaces.Tuple):
            return [self._place(inner) for inner in space.spaces]
        if space.shape is None or space.dtype is None:
            raise TypeError(f"{type(space).__name__} has no arrays to share: use vector_backend 'sync'")
        start = self._size
        shape, dtype = (self.num_envs, *space.shape), np.dtype(space.dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        self._size += -(-max(1, size) // ALIGNMENT) * ALIGNMENT
        return (start, shape, dtype)

    def _view(self, places: Any) -> Any:
        if isinstance(places, dict):
            return {key: self._view(inner) for key, inner in places.items()}
        if isinstance(places, list):
            return [self._view(inner) for inner in places]
        start, shape, dtype = places
        return np.frombuffer(self._memory, dtype, int(np.prod(shape)), start).reshape(shape)

    def write(self, env: int, observation: Any) -> None:
        _put(self._observations, env, observation)

    def read(self) -> Any:
        """Copies of all observations: the workers write the next ones to the same memory."""
        return _copied(self._observations)


def _put(views: Any, env: int, value: Any) -> None:
    if isinstance(views, dict):
        for key, inner in views.items():
            _put(inner, env, value[key])
    elif isinstance(views, list):
        for index, inner in enumerate(views):
            _put(inner, env, value[index])
    else:
        views[env] = value


def _copied(views: Any) -> Any:
    if isinstance(views, dict):
        return {key: _copied(inner) for key, inner in views.items()}
    return tuple(_copied(inner) for inner in views) if isinstance(views, list) else views.copy()


def new_descriptor() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rl_training")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
