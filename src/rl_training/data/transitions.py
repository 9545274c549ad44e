"""The batch that replay learners update from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(slots=True)
class Transitions:
    """A batch of (n-step) transitions.

    `discounts` multiplies the bootstrap value at `next_obs`: gamma to the power of the number of steps summed in
    `rewards`, or 0 after termination. A truncated episode keeps its discount, so no loss needs to know why an episode
    ended.
    """

    obs: Tensor  # [B, ...] float32, or uint8 for images
    actions: Tensor  # [B, ...] int64 or float32
    rewards: Tensor  # [B]
    next_obs: Tensor  # [B, ...]
    discounts: Tensor  # [B]
    weights: Tensor | None = None  # [B], importance weights of prioritized replay
    indices: np.ndarray | None = None  # [B], row indices for `update_priorities`

    def __len__(self) -> int:
        return self.rewards.shape[0]

    def to(self, device: torch.device | str) -> Transitions:
        """The same batch on `device`; the batch itself if it is already there."""
        if self.rewards.device == torch.device(device):
            return self
        return Transitions(
            obs=self.obs.to(device),
            actions=self.actions.to(device),
            rewards=self.rewards.to(device),
            next_obs=self.next_obs.to(device),
            discounts=self.discounts.to(device),
            weights=None if self.weights is None else self.weights.to(device),
            indices=self.indices,
        )
