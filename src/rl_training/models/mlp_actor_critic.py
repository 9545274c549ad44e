"""Actor-critic for on-policy algorithms: separate MLPs for policy and value, and one encoder for images."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import DiagonalGaussian
from rl_training.models.encoders.encoder import VectorEncoder, build_encoder
from rl_training.models.layers.exploration_head import noise_head, with_state_noise
from rl_training.models.mlp import ActingForward, acting_forward, mlp
from rl_training.models.policy import PolicyModel


class MLPActorCritic(PolicyModel):
    """Policy and value networks on normalized observations.

    The initial gain is sqrt(2) in hidden layers, 0.01 in the policy head (so that the first policy is nearly uniform)
    and 1 in the value head. Both use one image encoder; with `share_encoder=False` the critic has a second one.
    `state_noise` is the initial log-std of a noise matrix: the deviation of actions then depends on the state (gSDE).
    """

    def __init__(
        self, spaces: Spaces, config: ModelConfig, *, share_encoder: bool = True, state_noise: float | None = None
    ):
        super().__init__(spaces, config)
        self.actor = mlp(self.input_size, self.policy_outputs, config, output_gain=0.01)
        if state_noise is not None:
            self.log_std = None
            self.actor = with_state_noise(self.actor, state_noise, learn_features=False)
        self.critic = mlp(self.input_size, 1, config.for_critic(), output_gain=1.0)
        self.critic_encodes = not share_encoder and not isinstance(self.encoder, VectorEncoder)
        if self.critic_encodes:
            self.critic = nn.Sequential(build_encoder(spaces, config), *self.critic)
        self.values_while_acting = share_encoder and not isinstance(self.encoder, VectorEncoder)
        self._valuing: ActingForward | None = None
        self._acting_with_values: ActingForward | None = None
        self._latent: ActingForward | None = None

    def acting_network(self) -> nn.Sequential:
        return self.actor

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Sampled actions with log-probabilities, or the mode. With a shared image encoder, values are included.

        The values are cheap here, and the update does not need to encode every image of the rollout again.
        """
        if rng is None or not self.values_while_acting:
            return super().act(obs, rng)
        if self._acting_with_values is None:
            self._acting_with_values = acting_forward(self.actor, self.encoder, self.normalizer, beside=self.critic)
        outputs = self._acting_with_values(obs)
        actions, log_probs = self.distribution.sample(self._policy_parameters_numpy(outputs[:, :-1], obs), rng)
        return actions, {"log_probs": log_probs, "values": outputs[:, -1]}

    @property
    def noise_shape(self) -> tuple[int, int]:
        """Features and actions: the shape of the noise matrix of one env."""
        features, actions = noise_head(self.actor).log_std.shape
        return features, actions

    def explore(self, obs: np.ndarray, matrices: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """`act` with state-dependent noise, for one matrix [F, A] of standard normal numbers per row."""
        assert isinstance(self.distribution, DiagonalGaussian)
        head, beside = noise_head(self.actor), self.critic if self.values_while_acting else None
        if self._latent is None:
            hidden = nn.Sequential(*list(self.actor)[:-1])
            self._latent = acting_forward(hidden, self.encoder, self.normalizer, beside=beside)
        outputs = self._latent(obs)
        features, values = (outputs, None) if beside is None else (outputs[:, :-1], outputs[:, -1])
        noise = head.noise_numpy(features, matrices)
        actions, log_probs = self.distribution.shifted(head.numpy(features), noise)
        return actions, {"log_probs": log_probs} if values is None else {"log_probs": log_probs, "values": values}

    def value(self, obs: Tensor) -> Tensor:
        values: Tensor = self.critic(self._normalized(obs) if self.critic_encodes else self._input(obs)).squeeze(-1)
        return values

    def value_numpy(self, obs: np.ndarray) -> np.ndarray:
        if self.critic_encodes:
            return super().value_numpy(obs)
        if self._valuing is None:
            self._valuing = acting_forward(self.critic, self.encoder, self.normalizer)
        return self._valuing(obs)[:, 0]

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parameters, value = self.policy_and_value(obs)
        return self.distribution.log_prob(parameters, actions), self.distribution.entropy(parameters), value

    def policy_and_value(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters [B, P] and values [B]; both from one pass of a shared encoder."""
        inputs = self._input(obs)
        parameters = self._policy_parameters(self.actor(inputs), obs)
        return parameters, self.critic(self._normalized(obs) if self.critic_encodes else inputs).squeeze(-1)
