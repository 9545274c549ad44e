"""The networks of TQC: the actor of SAC, and critics that predict quantiles of the return."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic


class MLPTQCModel(MLPSquashedGaussianActorCritic):
    """A squashed Gaussian actor, and an ensemble of critics with the quantiles of Z(s, a) as outputs."""

    def __init__(
        self,
        spaces: Spaces,
        config: ModelConfig,
        *,
        num_critics: int,
        num_quantiles: int,
        state_noise: float | None = None,
    ):
        super().__init__(spaces, config, num_critics=num_critics, critic_outputs=num_quantiles, state_noise=state_noise)
        self.num_quantiles = num_quantiles

    def quantiles(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Quantiles of all critics [critics, B, quantiles]."""
        inputs = torch.cat([self._input(obs), actions], -1)
        return torch.stack([critic(inputs) for critic in self.critics])

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Expected returns of all critics [critics, B]."""
        return self.quantiles(obs, actions).mean(-1)

    def q_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Expected returns over all critics [B]."""
        return self.q_values(obs, actions).mean(0)
