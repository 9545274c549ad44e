"""Return distributions over fixed atoms for each discrete action, plain or dueling."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import expected_return
from rl_training.models.encoders.encoder import VectorEncoder
from rl_training.models.mlp import ActingForward, acting_forward
from rl_training.models.mlp_q import DuelingModel


class MLPC51Network(DuelingModel):
    """Logits of Z(s, a) on the support. Dueling as in Rainbow (arXiv:1710.02298): V + A - mean of A for each atom."""

    support: Tensor

    def __init__(self, spaces: Spaces, config: ModelConfig, *, support: Tensor, dueling: bool = False):
        super().__init__(spaces, config, outputs=len(support), dueling=dueling)
        self.num_atoms = len(support)
        self.register_buffer("support", support)
        self._acting_value: ActingForward | None = None

    def forward(self, obs: Tensor) -> Tensor:
        return self.distribution_logits(obs)

    def distribution_logits(self, obs: Tensor) -> Tensor:
        """Logits [B, actions, atoms]."""
        inputs = self._input(obs)
        advantage: Tensor = self.advantage(inputs).unflatten(1, (self.num_actions, self.num_atoms))
        if self.state_value is None:
            return advantage
        state_value: Tensor = self.state_value(inputs)
        return state_value[:, None] + advantage - advantage.mean(1, keepdim=True)

    def q_values(self, obs: Tensor) -> Tensor:
        """Expected returns [B, actions]; -inf for actions that are not allowed."""
        return self.masked(expected_return(self.distribution_logits(obs), self.support), obs)

    def greedy_actions(self, obs: np.ndarray) -> np.ndarray:
        """The allowed action with the largest expected return in each row."""
        actions: np.ndarray = self.q_values_numpy(obs).argmax(1)
        return actions

    def q_values_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`q_values` for acting: NumPy in and out, no autograd.

        Unlike in DQN, the dueling value matters here: it changes the softmax over the atoms.
        """
        if not isinstance(self.encoder, VectorEncoder):
            # One pass through the encoder, which takes most of the time, serves both streams.
            with torch.inference_mode():
                return self.q_values(torch.from_numpy(obs).to(self.support.device)).cpu().numpy()
        inputs = self._normalized_numpy(obs)
        if self._acting is None:
            self._acting = acting_forward(self.advantage)
        logits = self._acting(inputs).reshape(len(obs), self.num_actions, self.num_atoms)
        if self.state_value is not None:
            if self._acting_value is None:
                self._acting_value = acting_forward(self.state_value)
            logits = self._acting_value(inputs)[:, None] + logits - logits.mean(1, keepdims=True)
        mass = np.exp(logits - logits.max(-1, keepdims=True))
        values: np.ndarray = (mass @ self.support.cpu().numpy()) / mass.sum(-1)
        return self.masked_numpy(values, obs)
