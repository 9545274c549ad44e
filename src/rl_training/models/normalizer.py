"""Running observation statistics, kept inside the model so that no agent is ever used without them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rl_training.config.train import ModelConfig


class ObservationNormalizer(nn.Module):
    """(obs - mean) / std, clipped. The statistics are buffers: saved, loaded and moved with the model.

    They change only through `update`, which a learner calls after it has learned from the observations:
    within one rollout and its update the policy is one fixed function (otherwise PPO's first ratio is not 1).
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor
    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, shape: tuple[int, ...], clip: float):
        super().__init__()
        self.clip = clip
        # Moments in float64: summed over millions of steps, float32 would lose the small differences.
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return ((obs - self.shift) * self.scale).clamp(-self.clip, self.clip)

    def numpy(self, obs: np.ndarray) -> np.ndarray:
        return np.clip((obs - self.shift.cpu().numpy()) * self.scale.cpu().numpy(), -self.clip, self.clip)

    def update(self, obs: np.ndarray) -> None:
        """Merge a batch [B, ...] into the moments (Chan et al., parallel variance)."""
        batch = torch.from_numpy(np.asarray(obs, dtype=np.float64)).to(self.mean.device)
        batch_count = len(batch)
        if batch_count == 0:
            return
        batch_mean, batch_variance = batch.mean(0), batch.var(0, unbiased=False)
        total = self.count + batch_count
        delta = batch_mean - self.mean
        # The initial variance of 1 carries no weight (count 0): the first batch replaces it.
        merged = self.variance * self.count + batch_variance * batch_count + delta**2 * self.count * batch_count / total
        self.mean += delta * batch_count / total
        self.variance.copy_(merged / total)
        self.count.copy_(total)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.variance + 1e-8).rsqrt())


def make_normalizer(shape: tuple[int, ...], config: ModelConfig) -> ObservationNormalizer | None:
    return ObservationNormalizer(shape, config.observation_clip) if config.normalize_observations else None
