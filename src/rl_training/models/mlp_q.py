"""Q-network for discrete actions, plain or dueling."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.mlp import ActingForward, acting_forward, mlp


class DuelingModel(NormalizingModel):
    """Base class of models with `outputs` numbers per discrete action, from one stream or from two if dueling.

    The dueling streams share the encoder of images. For vectors they are two separate MLPs.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig, *, outputs: int, dueling: bool):
        super().__init__()
        self.mask_size = spaces.mask_size
        self.encoder = build_encoder(spaces, config)
        size, self.num_actions = self.encoder.output_size, spaces.action_sizes[0]
        self.normalizer = make_normalizer(spaces, config)
        self.advantage = mlp(size, self.num_actions * outputs, config)
        self.state_value = mlp(size, outputs, config) if dueling else None
        self._acting: ActingForward | None = None

    def _input(self, obs: Tensor) -> Tensor:
        features: Tensor = self.encoder(self._normalized(obs))
        return features


class MLPQNetwork(DuelingModel):
    """Q(s, .) for all actions. Dueling (arXiv:1511.06581, eq. 9): Q = V + A - mean over actions of A."""

    def __init__(self, spaces: Spaces, config: ModelConfig, *, dueling: bool = False):
        super().__init__(spaces, config, outputs=1, dueling=dueling)

    def forward(self, obs: Tensor) -> Tensor:
        return self.q_values(obs)

    def q_values(self, obs: Tensor) -> Tensor:
        """Q(s, .) [B, actions]; -inf for actions that are not allowed."""
        inputs = self._input(obs)
        advantage: Tensor = self.advantage(inputs)
        if self.state_value is None:
            return self.masked(advantage, obs)
        state_value: Tensor = self.state_value(inputs)
        return self.masked(state_value + advantage - advantage.mean(1, keepdim=True), obs)

    def advantage_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`advantage` for acting: NumPy in and out, no autograd."""
        if self._acting is None:
            self._acting = acting_forward(self.advantage, self.encoder, self.normalizer)
        return self._acting(obs)

    def greedy_actions(self, obs: np.ndarray) -> np.ndarray:
        """The allowed action with the largest Q in each row. The dueling value is the same for all and not needed."""
        actions: np.ndarray = self.masked_numpy(self.advantage_numpy(obs), obs).argmax(1)
        return actions
