"""The networks of random network distillation: a fixed random one, one that imitates it, and a critic of novelty."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.mlp import mlp

OBSERVATION_CLIP = 5.0


class NoveltyNetworks(NormalizingModel):
    """They share nothing with the policy, not even statistics: these normalize always, and clip to +-5.

    The imitating network has one hidden layer more than the random one, so that a failure to imitate comes from
    observations that it has not seen, and not from a lack of capacity.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig, size: int):
        super().__init__()
        self.mask_size = spaces.mask_size
        own = config.model_copy(update={"normalize_observations": True, "observation_clip": OBSERVATION_CLIP})
        self.normalizer = make_normalizer(spaces, own)
        hidden = config.hidden_sizes
        deeper = config.model_copy(update={"hidden_sizes": (*hidden, hidden[-1] if hidden else size)})

        def network(settings: ModelConfig, outputs: int) -> nn.Sequential:
            encoder = build_encoder(spaces, settings)
            return nn.Sequential(encoder, *mlp(encoder.output_size, outputs, settings))

        self.random = network(config, size).requires_grad_(False)
        self.imitation = network(deeper, size)
        self.critic = network(config.for_critic(), 1)

    def trained_parameters(self) -> list[nn.Parameter]:
        return [*self.imitation.parameters(), *self.critic.parameters()]

    def errors(self, obs: Tensor) -> Tensor:
        """mean_k (g_k(s) - f_k(s))^2 [B]: how badly `imitation` g knows `random` f at each observation."""
        inputs = self._normalized(obs)
        squares: Tensor = (self.imitation(inputs) - self.random(inputs)).square()
        return squares.mean(-1)

    def value(self, obs: Tensor) -> Tensor:
        """The discounted novelty that is expected to follow each observation [B]."""
        values: Tensor = self.critic(self._normalized(obs)).squeeze(-1)
        return values

    @torch.no_grad()
    def measured(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors and values of a rollout's observations: NumPy in and out, no autograd."""
        rows = torch.from_numpy(obs).to(next(self.parameters()).device)
        return self.errors(rows).cpu().numpy(), self.value(rows).cpu().numpy()
