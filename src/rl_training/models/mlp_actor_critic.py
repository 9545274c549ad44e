"""Actor-critic for the on-policy algorithms: separate MLPs for policy and value, on one encoder for images."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders import VectorEncoder, build_encoder
from rl_training.models.mlp import ActingForward, acting_forward, mlp
from rl_training.models.policy import PolicyModel


class MLPActorCritic(PolicyModel):
    """Policy and value networks with, if asked, observation normalisation in front of both.

    Initial gains: sqrt(2) in hidden layers, 0.01 for the policy head (so the first policy is near uniform),
    1 for the value head. An encoder of images serves both, unless `share_encoder` is off: then the critic has its own.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig, *, share_encoder: bool = True):
        super().__init__(spaces, config)
        self.actor = mlp(self.input_size, self.policy_outputs, config, output_gain=0.01)
        self.critic = mlp(self.input_size, 1, config, output_gain=1.0)
        self.critic_encodes = not share_encoder and not isinstance(self.encoder, VectorEncoder)
        if self.critic_encodes:
            self.critic = nn.Sequential(build_encoder(spaces, config), *self.critic)
        self.values_while_acting = share_encoder and not isinstance(self.encoder, VectorEncoder)
        self._valuing: ActingForward | None = None
        self._acting_with_values: ActingForward | None = None

    def acting_network(self) -> nn.Sequential:
        return self.actor

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Where one encoder of images serves both, values come with the actions at hardly any cost.

        The update then does not look at every image of the rollout once more.
        """
        if rng is None or not self.values_while_acting:
            return super().act(obs, rng)
        if self._acting_with_values is None:
            self._acting_with_values = acting_forward(self.actor, self.encoder, beside=self.critic)
        outputs = self._acting_with_values(obs if self.normalizer is None else self.normalizer.numpy(obs))
        actions, log_probs = self.distribution.sample(self._with_log_std_numpy(outputs[:, :-1]), rng)
        return actions, {"log_probs": log_probs, "values": outputs[:, -1]}

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(self._normalized(obs) if self.critic_encodes else self._input(obs)).squeeze(-1)

    def value_numpy(self, obs: np.ndarray) -> np.ndarray:
        if self.critic_encodes:
            return super().value_numpy(obs)
        if self._valuing is None:
            self._valuing = acting_forward(self.critic, self.encoder)
        return self._valuing(obs if self.normalizer is None else self.normalizer.numpy(obs))[:, 0]

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs = self._input(obs)
        parameters = self._with_log_std(self.actor(inputs))
        value = self.critic(self._normalized(obs) if self.critic_encodes else inputs).squeeze(-1)
        return self.distribution.log_prob(parameters, actions), self.distribution.entropy(parameters), value
