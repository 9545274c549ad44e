"""The parts of an observation space: where each is in a nested Dict or Tuple, and how its values become columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.errors import EnvError
from rl_training.text import one_line

Array = NDArray[Any]
SMALLEST_PICTURE = 8  # pixels of a side: bytes in a smaller table may be anything


class ImagePart(NamedTuple):
    """An image inside a Dict or Tuple: where it is in the space, and its bytes in the agent's array."""

    keys: tuple[Any, ...]
    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


class ObservationPart:
    """One leaf of the observation space: its place in the space and its encoding."""

    def __init__(self, keys: tuple[Any, ...], space: gym.Space[Any]) -> None:
        self.keys = keys
        self.name = "observation" + "".join(f"[{key!r}]" for key in keys)
        self.shape: tuple[int, ...] = space.shape or ()
        self.sizes: Array | None = None
        if isinstance(space, gym.spaces.Discrete):
            self.sizes, self.first = np.array([space.n]), np.array([space.start])
        elif isinstance(space, gym.spaces.MultiDiscrete):
            self.sizes, self.first = space.nvec.ravel().astype(np.int64), space.start.ravel().astype(np.int64)
        elif not isinstance(space, (gym.spaces.Box, gym.spaces.MultiBinary)):
            way_out = "wrap the env with gymnasium.wrappers.TransformObservation so that it has Box, Discrete, "
            if keys and isinstance(keys[0], str):
                way_out = (
                    f"leave it out with env_kwargs.observation_keys, a list of the keys without {keys[0]!r}, or "
                    + way_out
                )
            raise EnvError(
                f"{self.name} has the space {space_text(space)}, which is not supported: {way_out}"
                "MultiDiscrete, MultiBinary, or a Dict or Tuple of those"
            )
        self.is_image = bool(keys) and isinstance(space, gym.spaces.Box) and _is_image_inside(space)
        if self.sizes is None:
            self.width = math.prod(self.shape)
        else:
            self.width = int(self.sizes.sum())
            self.columns = np.cumsum(self.sizes) - self.sizes

    def pull(self, value: Any, space: gym.Space[Any]) -> Array:
        """The values of this leaf [N, ...] from a nested batch."""
        for depth, key in enumerate(self.keys):
            if not _is_container(value, space):
                # The batch is a sequence of whole samples, not one container of batches.
                samples = [_follow(sample, self.keys[depth:]) for sample in value]
                return as_batch(samples, self.shape, self.name)
            value, space = value[key], space[key]  # type: ignore[index]
        return as_batch(value, self.shape, self.name)

    def write(self, batch: Array, target: Array) -> None:
        """Fill the zeroed columns `target` with the batch."""
        flat = batch.reshape(len(batch), math.prod(self.shape))
        if self.sizes is None:
            target[:] = flat
            return
        categories = flat.astype(np.int64) - self.first
        if ((categories < 0) | (categories >= self.sizes)).any():
            raise EnvError(f"{self.name} is outside its space: correct the env or its space")
        target[np.arange(len(flat))[:, None], categories + self.columns] = 1.0

    def is_batched(self, value: Any, space: gym.Space[Any]) -> bool:
        for key in self.keys:
            if not _is_container(value, space):
                return True
            value, space = value[key], space[key]  # type: ignore[index]
        shape = _stack(value, self.name).shape
        if shape == self.shape:
            return False
        if shape[1:] == self.shape and shape:
            return True
        raise EnvError(f"{self.name} has shape {shape}: expected {self.shape}, or a batch (N, *{self.shape})")


def _follow(sample: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        sample = sample[key]
    return sample


def leaves_of(space: gym.Space[Any], keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], gym.Space[Any]]]:
    if isinstance(space, gym.spaces.Dict):
        for key, inner in space.spaces.items():
            yield from leaves_of(inner, (*keys, key))
    elif isinstance(space, gym.spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from leaves_of(inner, (*keys, index))
    else:
        yield keys, space


def space_text(space: gym.Space[Any]) -> str:
    # Arrays in a space's text contain line breaks, and an error message is one line.
    return one_line(space, 1000)


def is_image(space: gym.spaces.Box) -> bool:
    return len(space.shape) == 3 and space.dtype == np.uint8


def flat_picture(space: gym.Space[Any]) -> str | None:
    """What makes an image of a Box that looks like a picture but is read as numbers; None for any other space."""
    if not isinstance(space, gym.spaces.Box):
        return None
    if len(space.shape) == 3 and space.dtype != np.uint8:
        return "give it dtype uint8, from 0 to 255"
    is_gray = len(space.shape) == 2 and space.dtype == np.uint8 and min(space.shape) >= SMALLEST_PICTURE
    return f"give it the shape {(1, *space.shape)}" if is_gray and space.high.max() == 255 else None


def _is_image_inside(space: gym.spaces.Box) -> bool:
    """Inside a Dict or Tuple, a stack of images with a dimension of its own is an image too."""
    return len(space.shape) in (3, 4) and space.dtype == np.uint8


def _is_container(value: Any, space: gym.Space[Any]) -> bool:
    # A list is always a sequence of samples; only a tuple can be the batch of a Tuple space.
    return isinstance(value, Mapping if isinstance(space, gym.spaces.Dict) else tuple)


def _stack(value: Any, name: str) -> Array:
    try:
        array = np.asarray(value)
        return np.stack(list(array)) if array.dtype == object and array.ndim else array
    except ValueError as error:
        raise EnvError(f"{name} is ragged: its samples differ in shape, make them equal") from error


def as_batch(value: Any, shape: tuple[int, ...], name: str) -> Array:
    array = _stack(value, name)
    if array.ndim == 0 or array.shape[1:] != shape or array.dtype == object:
        raise EnvError(f"{name} has dtype {array.dtype} and shape {array.shape}: its space has (N, *{shape})")
    return array
