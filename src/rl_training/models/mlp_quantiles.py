"""Return distributions as quantiles at fixed fractions for each discrete action, plain or dueling."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp import acting_forward
from rl_training.models.mlp_q import DuelingModel


class MLPQuantileNetwork(DuelingModel):
    """Quantiles of Z(s, a) at the midpoints of equal parts. Dueling: V + A - mean of A for each quantile."""

    def __init__(self, spaces: Spaces, config: ModelConfig, *, num_quantiles: int, dueling: bool = False):
        super().__init__(spaces, config, outputs=num_quantiles, dueling=dueling)
        self.num_quantiles = num_quantiles

    def forward(self, obs: Tensor) -> Tensor:
        return self.quantiles(obs)

    def quantiles(self, obs: Tensor) -> Tensor:
        """Quantiles [B, actions, quantiles]."""
        inputs = self._input(obs)
        advantage: Tensor = self.advantage(inputs).unflatten(1, (self.num_actions, self.num_quantiles))
        if self.state_value is None:
            return advantage
        state_value: Tensor = self.state_value(inputs)
        return state_value[:, None] + advantage - advantage.mean(1, keepdim=True)

    def q_values(self, obs: Tensor) -> Tensor:
        """Expected returns [B, actions]: the mean over the quantiles; -inf for actions that are not allowed."""
        return self.masked(self.quantiles(obs).mean(2), obs)

    def advantage_numpy(self, obs: np.ndarray) -> np.ndarray:
        """The mean of `advantage` over the quantiles, for acting: NumPy in and out, no autograd.   [B, actions]"""
        if self._acting is None:
            self._acting = acting_forward(self.advantage, self.encoder, self.normalizer)
        means: np.ndarray = self._acting(obs).reshape(len(obs), self.num_actions, self.num_quantiles).mean(2)
        return means

    def greedy_actions(self, obs: np.ndarray) -> np.ndarray:
        """The allowed action with the largest mean in each row. The dueling value is the same for all, not needed."""
        actions: np.ndarray = self.masked_numpy(self.advantage_numpy(obs), obs).argmax(1)
        return actions
