"""The networks of D4PG: a deterministic actor and a critic that predicts a distribution of returns."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import LOG_SQRT_2PI, bellman_atoms, expected_return
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.mlp import ActingForward, acting_forward, mlp


class MLPD4PGModel(NormalizingModel):
    """A tanh actor mu(s) and a categorical critic Z(s, a) on fixed atoms, for actions normalized to [-1, 1].

    Both share an encoder of images, which only the critic trains.
    """

    support: Tensor

    def __init__(self, spaces: Spaces, config: ModelConfig, *, support: Tensor):
        super().__init__()
        self.encoder = build_encoder(spaces, config)
        size = self.encoder.output_size
        self.register_buffer("support", support)
        self.normalizer = make_normalizer(spaces, config)
        self.policy_network = mlp(size, spaces.action_dim, config, tanh_output=True)
        self.critic = mlp(size + spaces.action_dim, len(support), config.for_critic())
        self._acting: ActingForward | None = None

    def actor(self, obs: Tensor) -> Tensor:
        """Deterministic actions [B, A]."""
        actions: Tensor = self.policy_network(self._input(obs).detach())
        return actions

    def _input(self, obs: Tensor) -> Tensor:
        """Features [B, input_size]: the observations, normalized and encoded."""
        features: Tensor = self.encoder(self._normalized(obs))
        return features

    def act(self, obs: np.ndarray) -> np.ndarray:
        """`actor` for acting: NumPy in and out, no autograd."""
        if self._acting is None:
            self._acting = acting_forward(self.policy_network, self.encoder, self.normalizer)
        return self._acting(obs)

    def sample(self, obs: Tensor, noise: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Exploratory actions clip(mu(s) + sigma * noise) [B, A] for standard normal `noise`, and log-densities [B].

        The density is that of the Gaussian before clipping; clipped actions have no density.
        """
        actions = (self.actor(obs) + sigma * noise).clamp(-1.0, 1.0)
        return actions, (-0.5 * noise.square() - math.log(sigma) - LOG_SQRT_2PI).sum(-1)

    def distribution_logits(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Logits [B, atoms]."""
        logits: Tensor = self.critic(torch.cat([self._input(obs), actions], -1))
        return logits

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Expected returns [B]."""
        return expected_return(self.distribution_logits(obs, actions), self.support)

    def target_support(self, rewards: Tensor, discounts: Tensor) -> Tensor:
        """The atoms r + d z_j of the next state's return, discounted to this state [B, atoms]."""
        return bellman_atoms(rewards, discounts, self.support)
