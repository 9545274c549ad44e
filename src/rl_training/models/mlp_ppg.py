"""The network of PPG: one trunk with a policy head, a value head and an auxiliary value head."""

from __future__ import annotations

from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp import mlp
from rl_training.models.policy import PolicyModel


class MLPPPGModel(PolicyModel):
    """The trunk learns from the policy loss in the policy phase and from both value heads in the auxiliary phase.

    In `value` and `evaluate_actions` the gradient of the value stops at the value head; in `auxiliary` it reaches the
    trunk. The value head has a hidden layer, because the features of the policy phase are not trained for it. The
    auxiliary head is linear, so the trunk must learn the features that it needs.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__(spaces, config)
        actor = mlp(self.input_size, self.policy_outputs, config, output_gain=0.01)
        self.trunk = nn.Sequential(*list(actor)[:-1])
        self.policy_head = actor[-1]
        width = (self.input_size, *config.hidden_sizes)[-1]
        critic = config.for_critic()
        self.value_head = mlp(width, 1, critic.model_copy(update={"hidden_sizes": critic.hidden_sizes[-1:]}))
        self.auxiliary_head = mlp(width, 1, config.model_copy(update={"hidden_sizes": (), "blocks": "mlp"}))

    def acting_network(self) -> nn.Sequential:
        return nn.Sequential(*self.trunk, self.policy_head)

    def value(self, obs: Tensor) -> Tensor:
        values: Tensor = self.value_head(self.trunk(self._input(obs)).detach()).squeeze(-1)
        return values

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.trunk(self._input(obs))
        parameters = self._policy_parameters(self.policy_head(features), obs)
        value = self.value_head(features.detach()).squeeze(-1)
        return self.distribution.log_prob(parameters, actions), self.distribution.entropy(parameters), value

    def auxiliary(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distribution parameters [B, P], value and auxiliary value [B], each with gradients into the trunk."""
        features = self.trunk(self._input(obs))
        parameters = self._policy_parameters(self.policy_head(features), obs)
        return parameters, self.value_head(features).squeeze(-1), self.auxiliary_head(features).squeeze(-1)
