"""Image observations of any env: grayscale, resize, channels first, stack; each only if it is asked for."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from rl_training.config.pixels import ImageOptions
from rl_training.errors import EnvError, install_hint
from rl_training.text import one_line

MOST_CHANNELS = 4


def image_env(env: gym.Env[Any, Any], options: ImageOptions) -> gym.Env[Any, Any]:
    """`env` with its uint8 images (HWC, CHW or HW) transformed as `options` say."""
    space = env.observation_space
    shape = space.shape or ()
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8 or len(shape) not in (2, 3):
        raise EnvError(
            f"env_kwargs.image is for images, a uint8 Box (height, width[, channels]), but the env has the observation "
            f"space {one_line(space, 1000)}: leave env_kwargs.image out"
        )
    if len(shape) == 2:
        env = _reshaped(env, (*shape, 1), lambda image: image[:, :, None])
    elif shape[0] <= MOST_CHANNELS < shape[2]:
        env = _reshaped(env, (*shape[1:], shape[0]), lambda image: np.moveaxis(image, 0, -1))
    if options.grayscale and (env.observation_space.shape or ())[-1] == 3:
        env = wrappers.GrayscaleObservation(env, keep_dim=True)
    if options.height_and_width is not None:
        try:
            env = wrappers.ResizeObservation(env, options.height_and_width)
        except gym.error.DependencyNotInstalled:
            raise EnvError(f"env_kwargs.image.resize needs OpenCV: {install_hint('atari')}") from None
        resized = env.observation_space.shape or ()
        if resized[-1] == 1:  # OpenCV drops a single channel, and Gymnasium before 1.4 does not put it back
            env = _reshaped(env, resized, lambda image: image.reshape(resized))
    if options.channel_first:
        height, width, channels = env.observation_space.shape or ()
        env = _reshaped(env, (channels, height, width), lambda image: np.moveaxis(image, -1, 0))
    if options.stack == 1:
        return env
    return stacked(env, options.stack, axis=0 if options.channel_first else -1)


def stacked(env: gym.Env[Any, Any], count: int, axis: int) -> gym.Env[Any, Any]:
    """The newest `count` images, joined along the channel axis, oldest first. Missing images are black."""
    shape = env.observation_space.shape or ()
    whole = list(shape)
    whole[axis] *= count
    env = wrappers.FrameStackObservation(env, count, padding_type="zero")
    return _reshaped(env, tuple(whole), lambda images: np.concatenate(list(images), axis))


def _reshaped(env: gym.Env[Any, Any], shape: tuple[int, ...], change: Any) -> gym.Env[Any, Any]:
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    return wrappers.TransformObservation(env, lambda image: np.ascontiguousarray(change(image)), space)
