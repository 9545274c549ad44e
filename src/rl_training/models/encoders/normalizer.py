"""Running statistics of observations. They are part of the model, so an agent is never used without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from rl_training.config.train_config import ModelConfig
from rl_training.data.gradient_push import Moments
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.observation_views import bytes_of, numbers_in

Rows = TypeVar("Rows", torch.Tensor, np.ndarray)


class ObservationNormalizer(nn.Module):
    """(obs - mean) / std, clipped. The statistics are buffers: saved, loaded and moved with the model.

    Only `update` changes them. It is called after learning from the observations, so the policy is a fixed function
    during a rollout and its update; otherwise PPO's first probability ratio would not be 1.

    With `pixels`, images are whitened pixel by pixel as in arXiv:1810.12894: constant pixels become 0, and rare
    changes stand out. Images are divided by 255 until the first update. The variance of a pixel is at least one
    squared gray level.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor
    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, shape: tuple[int, ...], clip: float, *, pixels: bool = False):
        super().__init__()
        self.clip = clip
        self.least_variance = 1.0 if pixels else 1e-8
        # Moments in float64: over millions of steps float32 would lose small differences.
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.full(shape, 1 / 255 if pixels else 1.0))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> ObservationNormalizer:
        """Move what a forward pass needs. The moments stay on the CPU: not every device has float64."""
        self.shift, self.scale = fn(self.shift), fn(self.scale)
        return self

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return ((obs - self.shift) * self.scale).clamp(-self.clip, self.clip)

    def numpy(self, obs: np.ndarray) -> np.ndarray:
        """`forward` for acting: NumPy in and out."""
        return _normalized(obs, self.shift.cpu().numpy(), self.scale.cpu().numpy(), *self._bounds())

    def numpy_forward(self) -> Callable[[np.ndarray], np.ndarray]:
        """`numpy` without looking up the statistics in each call, which takes longer than to normalize a few rows.

        On the CPU the arrays are views of the buffers, so they follow every update.
        """
        if self.shift.device.type != "cpu":
            return self.numpy
        parts = (self.shift.numpy(), self.scale.numpy(), *self._bounds())
        return lambda obs: _normalized(obs, *parts)

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(-self.clip, np.float32), np.array(self.clip, np.float32)

    def moments_of(self, obs: np.ndarray) -> Moments:
        """What `merge` needs of a batch [B, ...], which must not be empty."""
        return Moments(len(obs), *_moments(obs))

    def update(self, obs: np.ndarray) -> None:
        """Take a batch [B, ...] into the moments."""
        if len(obs):
            self.merge(self.moments_of(obs))

    def merge(self, moments: Moments) -> None:
        """Merge the moments of a batch into those of all (parallel variance, Chan et al.)."""
        batch_count = moments.count
        batch_mean, batch_variance = torch.from_numpy(moments.mean), torch.from_numpy(moments.variance)
        total = self.count + batch_count
        delta = batch_mean - self.mean
        # The initial variance of 1 has no weight (count 0), so the first batch replaces it.
        merged = self.variance * self.count + batch_variance * batch_count + delta**2 * self.count * batch_count / total
        self.mean += delta * batch_count / total
        self.variance.copy_(merged / total)
        self.count.copy_(total)
        self.shift.copy_(self.mean.to(self.shift.dtype))
        self.scale.copy_((self.variance + self.least_variance).rsqrt().to(self.scale.dtype))


class NumbersNormalizer(ObservationNormalizer):
    """Normalizes the numbers in rows of bytes; the images beside them stay as they are."""

    def __init__(self, count: int, clip: float):
        super().__init__((count,), clip)
        self.numbers = count

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        numbers = super().forward(numbers_in(obs, self.numbers))
        return torch.cat([bytes_of(numbers), obs[:, 4 * self.numbers :]], 1)

    def numpy(self, obs: np.ndarray) -> np.ndarray:
        normalized = obs.copy()
        numbers = super().numpy(self._numbers_in(obs)).astype(np.float32, copy=False)
        normalized[:, : 4 * self.numbers] = numbers.view(np.uint8)
        return normalized

    def numpy_forward(self) -> Callable[[np.ndarray], np.ndarray]:
        return self.numpy

    def moments_of(self, obs: np.ndarray) -> Moments:
        return super().moments_of(self._numbers_in(obs))

    def _numbers_in(self, obs: np.ndarray) -> np.ndarray:
        numbers: np.ndarray = np.ascontiguousarray(obs[:, : 4 * self.numbers]).view(np.float32)
        return numbers


def _normalized(
    obs: np.ndarray, shift: np.ndarray, scale: np.ndarray, lowest: np.ndarray, highest: np.ndarray
) -> np.ndarray:
    normalized: np.ndarray = obs - shift
    normalized *= scale
    # Not np.clip: for a few rows it takes several times as long.
    np.maximum(normalized, lowest, out=normalized)
    np.minimum(normalized, highest, out=normalized)
    return normalized


def _moments(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance over the rows in float64."""
    if obs.dtype != np.uint8:
        obs = np.asarray(obs, np.float64)
        return np.asarray(obs.mean(0)), np.asarray(obs.var(0))
    # Integer sums are exact and need no float64 copy of the images.
    mean = obs.sum(0, dtype=np.int64) / len(obs)
    return mean, np.square(obs, dtype=np.uint16).sum(0, dtype=np.int64) / len(obs) - mean**2


def make_normalizer(spaces: Spaces, config: ModelConfig) -> ObservationNormalizer | None:
    """The normalizer that `model.normalize_observations` asks for, or None."""
    if not config.normalize_observations:
        return None
    if spaces.images:
        return NumbersNormalizer(spaces.vector_size, config.observation_clip) if spaces.vector_size else None
    pixels = spaces.observation_dtype == np.uint8
    return ObservationNormalizer(spaces.feature_shape, config.observation_clip, pixels=pixels)


class NormalizingModel(nn.Module):
    """Base class of all models: normalizes observations if the config asks for it.

    The last `mask_size` columns of an observation say which discrete actions are allowed. They are no features:
    `features` leaves them out, and `masked` applies them to one number per action.
    """

    normalizer: ObservationNormalizer | None
    mask_size: int = 0

    def features(self, obs: Rows) -> Rows:
        """The observation without the mask of its actions."""
        return obs[..., : -self.mask_size] if self.mask_size else obs

    def masked(self, values: torch.Tensor, obs: torch.Tensor) -> torch.Tensor:
        """`values` [B, actions] with -inf for actions that are not allowed in `obs`."""
        return values.masked_fill(obs[:, -self.mask_size :] == 0, -torch.inf) if self.mask_size else values

    def masked_numpy(self, values: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """`masked` for acting: NumPy in and out."""
        if not self.mask_size:
            return values
        return np.where(obs[:, -self.mask_size :] == 0, np.float32(-np.inf), values)

    def _normalized(self, obs: torch.Tensor) -> torch.Tensor:
        features = self.features(obs)
        return features if self.normalizer is None else self.normalizer(features)

    def _normalized_numpy(self, obs: np.ndarray) -> np.ndarray:
        features = self.features(obs)
        return features if self.normalizer is None else self.normalizer.numpy(features)
