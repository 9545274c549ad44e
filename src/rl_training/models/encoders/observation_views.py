"""Tensors of observations in the form of the environment's space: what an encoder gets."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rl_training.envs.spaces import MASK_KEY, Spaces


def numbers_in(rows: Tensor, count: int) -> Tensor:
    """The numbers [B, count] at the start of rows of bytes."""
    # Flat first: a single row of any length counts as contiguous, but not every length can be read as numbers.
    return rows[:, : 4 * count].reshape(-1).view(torch.float32).reshape(-1, count)


def bytes_of(numbers: Tensor) -> Tensor:
    """The bytes [B, 4 * count] of float32 numbers [B, count]."""
    return numbers.contiguous().view(torch.uint8)


def seen_space(spaces: Spaces) -> gym.Space[Any]:
    """The observation space without the mask of the actions, which no network sees."""
    whole = spaces.observation_space
    if not spaces.mask_size:
        return whole
    assert isinstance(whole, gym.spaces.Dict)  # only a key of one is a mask
    return gym.spaces.Dict({key: part for key, part in whole.spaces.items() if key != MASK_KEY})


def quiet_rows(spaces: Spaces, count: int) -> np.ndarray:
    """Rows [count, *feature_shape] that the env may send: zeros, or what is nearest to them in its space."""
    encoded = spaces.encode([_nearest_to_zero(spaces.observation_space)] * count)
    return np.ascontiguousarray(encoded[:, : spaces.feature_shape[0]] if spaces.mask_size else encoded)


def _nearest_to_zero(space: gym.Space[Any]) -> Any:
    match space:
        case gym.spaces.Dict(spaces=parts):
            return {key: _nearest_to_zero(part) for key, part in parts.items()}
        case gym.spaces.Tuple(spaces=parts):
            return tuple(_nearest_to_zero(part) for part in parts)
        case gym.spaces.Box(low=low, high=high):
            return np.clip(np.zeros_like(low), low, high)
        case gym.spaces.Discrete(start=start) | gym.spaces.MultiDiscrete(start=start):
            return start
    return np.zeros(space.shape or (), space.dtype)


class ObservationViews:
    """Splits the agent's array [B, ...] into the parts of the space.

    A Box keeps its shape, Discrete parts are one-hot, images are uint8, and a Dict or Tuple is one again.
    """

    def __init__(self, spaces: Spaces):
        self._space = seen_space(spaces)
        self._parts = spaces.parts()
        self._has_bytes = bool(spaces.images)
        self._numbers = spaces.vector_size

    def __call__(self, rows: Tensor) -> Any:
        if rows.ndim > 2:  # a whole image
            return rows
        numbers = numbers_in(rows, self._numbers) if self._has_bytes and self._numbers else rows
        by_keys = {
            keys: (rows if is_image else numbers)[:, columns].reshape(-1, *shape)
            for keys, shape, columns, is_image in self._parts
        }
        return self._nested(self._space, (), by_keys)

    def _nested(self, space: gym.Space[Any], keys: tuple[Any, ...], by_keys: dict[tuple[Any, ...], Tensor]) -> Any:
        if isinstance(space, gym.spaces.Dict):
            return {key: self._nested(part, (*keys, key), by_keys) for key, part in space.spaces.items()}
        if isinstance(space, gym.spaces.Tuple):
            return tuple(self._nested(part, (*keys, index), by_keys) for index, part in enumerate(space.spaces))
        return by_keys[keys]
