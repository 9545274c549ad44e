"""Q-network over discrete actions, plain or dueling."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders import build_encoder
from rl_training.models.mlp import ActingForward, acting_forward, mlp
from rl_training.models.normalizer import make_normalizer


class MLPQNetwork(nn.Module):
    """Q(s, .) for every action. Dueling (arXiv:1511.06581, eq. 9): Q = V + A - mean over actions of A.

    The dueling streams share the encoder of images; on vectors they are two full MLPs with nothing worth sharing.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig, *, dueling: bool = False):
        super().__init__()
        self.encoder = build_encoder(spaces, config)
        size, num_actions = self.encoder.output_size, spaces.action_sizes[0]
        self.normalizer = make_normalizer(spaces, config)
        self.advantage = mlp(size, num_actions, config)
        self.state_value = mlp(size, 1, config) if dueling else None
        self._acting: ActingForward | None = None

    def _input(self, obs: Tensor) -> Tensor:
        return self.encoder(obs if self.normalizer is None else self.normalizer(obs))

    def forward(self, obs: Tensor) -> Tensor:
        return self.q_values(obs)

    def q_values(self, obs: Tensor) -> Tensor:
        """[B, actions]"""
        inputs = self._input(obs)
        advantage = self.advantage(inputs)
        if self.state_value is None:
            return advantage
        return self.state_value(inputs) + advantage - advantage.mean(1, keepdim=True)

    def advantage_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`advantage` for acting: NumPy in and out, no autograd."""
        if self._acting is None:
            self._acting = acting_forward(self.advantage, self.encoder)
        return self._acting(obs if self.normalizer is None else self.normalizer.numpy(obs))

    def greedy_actions(self, obs: np.ndarray) -> np.ndarray:
        """argmax over actions. The dueling value is the same for every action and drops out."""
        return self.advantage_numpy(obs).argmax(1)
