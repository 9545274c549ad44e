"""The base class of stochastic policies: encoder, action distribution, and acting without autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import Categorical, DiagonalGaussian
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.mlp import ActingForward, acting_forward


class PolicyModel(NormalizingModel):
    """A stochastic policy with a state value. Subclasses define the networks and what policy and value share.

    Gaussian policies have one log-std per action dimension, independent of the state.
    """

    values_while_acting = False  # whether `act` computes values, too

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__()
        self.mask_size = spaces.mask_size
        self.encoder = build_encoder(spaces, config)
        self.input_size = self.encoder.output_size
        self.normalizer = make_normalizer(spaces, config)
        self.distribution: Categorical | DiagonalGaussian
        self.log_std: nn.Parameter | None = None
        if spaces.action_kind == "box":
            self.distribution = DiagonalGaussian(spaces.action_dim)
            self.log_std = nn.Parameter(torch.full((spaces.action_dim,), float(config.initial_log_std)))
            self.policy_outputs = spaces.action_dim
        else:
            self.distribution = Categorical(
                spaces.action_sizes, scalar=spaces.action_kind == "discrete", masked=spaces.mask_size > 0
            )
            self.policy_outputs = self.distribution.parameter_size
        self._acting: ActingForward | None = None

    def acting_network(self) -> nn.Sequential:
        """The network from features to the policy's outputs."""
        raise NotImplementedError

    def value(self, obs: Tensor) -> Tensor:
        """State values [B]."""
        raise NotImplementedError

    def value_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`value` for a rollout: NumPy in and out, no autograd."""
        device = next(self.parameters()).device
        with torch.inference_mode():
            return self.value(torch.from_numpy(obs).to(device)).cpu().numpy()

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log pi(a|s), entropy and value, each [B]."""
        raise NotImplementedError

    def policy(self, obs: Tensor) -> Tensor:
        """Distribution parameters [B, P]."""
        return self._policy_parameters(self.acting_network()(self._input(obs)), obs)

    def _input(self, obs: Tensor) -> Tensor:
        """Features [B, input_size]: the observations, normalized and encoded."""
        features: Tensor = self.encoder(self._normalized(obs))
        return features

    def _policy_parameters(self, outputs: Tensor, obs: Tensor) -> Tensor:
        """Distribution parameters of the policy's outputs: with log-std, or without actions that are not allowed."""
        return self.masked(outputs, obs) if self.log_std is None else self._with_log_std(outputs)

    def _with_log_std(self, outputs: Tensor) -> Tensor:
        return outputs if self.log_std is None else torch.cat([outputs, self.log_std.expand_as(outputs)], -1)

    def policy_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`policy` for acting: NumPy in and out, no autograd."""
        if self._acting is None:
            self._acting = acting_forward(self.acting_network(), self.encoder, self.normalizer)
        return self._policy_parameters_numpy(self._acting(obs), obs)

    def _policy_parameters_numpy(self, outputs: np.ndarray, obs: np.ndarray) -> np.ndarray:
        if self.log_std is None:
            return self.masked_numpy(outputs, obs)
        return np.concatenate([outputs, np.broadcast_to(self.log_std.detach().cpu().numpy(), outputs.shape)], 1)

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Sampled actions with their log-probabilities, or the mode if `rng` is None."""
        parameters = self.policy_numpy(obs)
        if rng is None:
            return self.distribution.mode(parameters), {}
        actions, log_probs = self.distribution.sample(parameters, rng)
        return actions, {"log_probs": log_probs}
