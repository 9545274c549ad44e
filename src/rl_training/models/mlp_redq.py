"""The networks of REDQ and DroQ: the actor of SAC, and an ensemble of critics, with dropout for DroQ."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.layers.blocks import Dropout, run
from rl_training.models.mlp import mlp
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic


class MLPREDQModel(MLPSquashedGaussianActorCritic):
    """A squashed Gaussian actor and `num_critics` critics, whose hidden units are dropped by given masks."""

    def __init__(self, spaces: Spaces, config: ModelConfig, *, num_critics: int, dropout: float = 0.0):
        self.dropout = dropout
        super().__init__(spaces, config, num_critics=num_critics)
        layers = sum(isinstance(layer, Dropout) for layer in self.critic_networks()[0])
        self.mask_sizes = config.for_critic().hidden_sizes[:layers] * num_critics

    def make_critic(self, inputs: int, outputs: int, config: ModelConfig) -> nn.Sequential:
        return mlp(inputs, outputs, config, dropout=self.dropout)

    def q_values(self, obs: Tensor, actions: Tensor, masks: Tensor | None = None) -> Tensor:
        """Values of all critics [critics, B]. `masks` [B, sum of `mask_sizes`] has those of all critics in order."""
        inputs = torch.cat([self._input(obs), actions], -1)
        if masks is None or not self.mask_sizes:
            return torch.stack([critic(inputs).squeeze(-1) for critic in self.critics])
        parts = masks.split(self.mask_sizes, -1)
        critics = self.critic_networks()
        count = len(parts) // len(critics)
        own_masks = [parts[start : start + count] for start in range(0, len(parts), count)]
        values = [run(critic, inputs, masks=own) for critic, own in zip(critics, own_masks, strict=True)]
        return torch.stack(values).squeeze(-1)
