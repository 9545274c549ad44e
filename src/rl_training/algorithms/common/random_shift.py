"""Random shifts of images: DrQ, Kostrikov, Yarats, Fergus (2020), arXiv:2004.13649, with one draw per observation.

An image is padded by repeating its border, and a window of its old size is cut out at a random place. The critic then
sees the same scene at many positions, which keeps it from overfitting to pixels.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError


class RandomShift:
    """Shifts each image of a batch by up to `pixels` in both directions; other parts stay as they are."""

    def __init__(self, spaces: Spaces, pixels: int):
        self.pixels = pixels
        places = [(slice(image.start, image.stop), image.shape) for image in spaces.images]
        whole = [(slice(None), spaces.observation_shape)] if len(spaces.observation_shape) == 3 else []
        self._places: list[tuple[slice, tuple[int, ...]]] = [*whole, *places]
        if not self._places:
            raise ConfigError(
                f"algo_kwargs.random_shift: {pixels} needs images, but the observations have none; set it to 0",
                key="algo_kwargs.random_shift",
            )

    def __call__(self, obs: Tensor, rng: np.random.Generator) -> Tensor:
        shifted = obs.clone()
        for columns, shape in self._places:
            offsets = rng.integers(-self.pixels, self.pixels + 1, (2, len(obs)))
            images = obs.reshape(len(obs), -1)[:, columns].reshape(len(obs), *shape)
            moved = shift(images, torch.from_numpy(offsets).to(obs.device), colors_last=_has_colors_last(shape))
            shifted.reshape(len(obs), -1)[:, columns] = moved.reshape(len(obs), math.prod(shape))
        return shifted


def shift(images: Tensor, offsets: Tensor, *, colors_last: bool) -> Tensor:
    """images[b] moved by offsets[0, b] rows and offsets[1, b] columns; the border repeats where nothing is left."""
    if colors_last:
        images = images.movedim(-1, -3)
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) + offsets[0][:, None]).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) + offsets[1][:, None]).clamp(0, width - 1)
    each = torch.arange(len(images), device=images.device)[:, None, None]
    # Indices of batch, rows and columns first, then the dimensions in between: colors, and frames of a stack.
    inner = images.flatten(1, -3).movedim(1, -1)
    moved = inner[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1).reshape(images.shape)
    return moved.movedim(-3, -1) if colors_last else moved


def _has_colors_last(shape: tuple[int, ...]) -> bool:
    return shape[-1] <= 4 < min(shape[-3:-1])
