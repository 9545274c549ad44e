"""ACER's networks for discrete actions: a policy, and the value of every action."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import Categorical
from rl_training.models.mlp import mlp
from rl_training.models.policy import PolicyModel


class MLPACERModel(PolicyModel):
    """Policy and Q on normalized observations: separate MLPs, and one encoder for images.

    The value of a state is that of the policy's mean action: V(s) = sum_a pi(a|s) Q(s, a).
    """

    distribution: Categorical

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__(spaces, config)
        self.actor = mlp(self.input_size, self.policy_outputs, config, output_gain=0.01)
        self.critic = mlp(self.input_size, self.policy_outputs, config.for_critic(), output_gain=1.0)

    def acting_network(self) -> nn.Sequential:
        return self.actor

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Sampled actions with the probabilities of ALL actions, or the mode if `rng` is None."""
        logits = self.policy_numpy(obs)
        if rng is None:
            return self.distribution.mode(logits), {}
        actions, log_probs = self.distribution.sample(logits, rng)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return actions, {"log_probs": log_probs, "probs": weights / weights.sum(1, keepdims=True)}

    def policy_and_q(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """pi(.|s) and Q(s, .), each [B, actions]. An action that is not allowed has probability 0."""
        inputs = self._input(obs)
        return self._policy_parameters(self.actor(inputs), obs).softmax(-1), self.critic(inputs)

    def q_values(self, obs: Tensor) -> Tensor:
        """Q(s, .) [B, actions]."""
        values: Tensor = self.critic(self._input(obs))
        return values

    def value(self, obs: Tensor) -> Tensor:
        probs, q = self.policy_and_q(obs)
        return (probs * q).sum(-1)

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs = self._input(obs)
        logits = self._policy_parameters(self.actor(inputs), obs)
        value = (logits.softmax(-1) * self.critic(inputs)).sum(-1)
        return self.distribution.log_prob(logits, actions), self.distribution.entropy(logits), value
