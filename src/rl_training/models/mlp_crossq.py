"""The networks of CrossQ: actor and critics of SAC with batch norm, whose mode is an argument of every pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import squashed_gaussian
from rl_training.models.layers.blocks import run
from rl_training.models.mlp import batch_norm_mlp
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic


class MLPCrossQModel(MLPSquashedGaussianActorCritic):
    """A pass with `batch_statistics` normalizes by its rows and learns their statistics; others use what is learned."""

    def __init__(self, spaces: Spaces, config: ModelConfig, *, renorm_after: int = 100_000):
        self.renorm_after = renorm_after
        super().__init__(spaces, config)

    def make_actor(self, inputs: int, outputs: int, config: ModelConfig, tanh: bool) -> nn.Sequential:
        return batch_norm_mlp(inputs, outputs, config, renorm_after=self.renorm_after)

    def make_critic(self, inputs: int, outputs: int, config: ModelConfig) -> nn.Sequential:
        return batch_norm_mlp(inputs, outputs, config, renorm_after=self.renorm_after)

    def policy_outputs(self, obs: Tensor, *, batch_statistics: bool = False) -> Tensor:
        return run(self.policy_network, self._input(obs).detach(), batch_statistics=batch_statistics)

    def sample(self, obs: Tensor, noise: Tensor, *, batch_statistics: bool = False) -> tuple[Tensor, Tensor]:
        """Reparameterized actions [B, A] and log pi [B] for standard normal `noise`."""
        outputs = self.policy_outputs(obs, batch_statistics=batch_statistics)
        return squashed_gaussian(*self._mean_and_log_std(outputs), noise)

    def q_values(self, obs: Tensor, actions: Tensor, *, batch_statistics: bool = False) -> Tensor:
        """Values of both critics [2, B]."""
        inputs = torch.cat([self._input(obs), actions], -1)
        values = [
            run(critic, inputs, batch_statistics=batch_statistics).squeeze(-1) for critic in self.critic_networks()
        ]
        return torch.stack(values)

    def q_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values of the first critic [B]."""
        return self.q_values(obs, actions)[0]
