"""Settings that PPO, TRPO, PPG and PQN share: several passes over each rollout in shuffled minibatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rl_training.config.base import OnPolicyConfig, RolloutConfig, UpdateEpochs
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig

MinibatchSize = Annotated[int, Field(ge=1, description="Transitions of a rollout per minibatch (one gradient step).")]


class MinibatchRolloutConfig(RolloutConfig):
    minibatch_size: MinibatchSize = 64
    update_epochs: UpdateEpochs

    def check(self, train: TrainConfig) -> None:
        rollout = self.num_steps * train.num_envs
        if self.minibatch_size > rollout:
            raise ConfigError(
                f"algo_kwargs.minibatch_size: {self.minibatch_size} exceeds the transitions of one rollout, "
                f"num_steps * num_envs = {self.num_steps} * {train.num_envs} = {rollout}",
                key="algo_kwargs.minibatch_size",
            )


class MinibatchConfig(MinibatchRolloutConfig, OnPolicyConfig):
    """The same with a policy and a value function."""
