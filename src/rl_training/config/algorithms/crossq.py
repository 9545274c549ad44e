"""Settings of CrossQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.common.actor_critic import (
    ActorLearningRate,
    CriticLearningRate,
    SoftActorCriticConfig,
    TemperatureLearningRate,
)
from rl_training.config.base import constant
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class CrossQConfig(SoftActorCriticConfig):
    actor_learning_rate: ActorLearningRate = constant(1e-3)
    critic_learning_rate: CriticLearningRate = constant(1e-3)
    temperature_learning_rate: TemperatureLearningRate = constant(1e-3)
    adam_beta1: float = Field(
        0.5, ge=0, lt=1, description="Decay of Adam's running mean of gradients, for actor and critics."
    )
    policy_delay: int = Field(3, ge=1, description="Critic updates per update of the actor and of the temperature.")
    renorm_after: int = Field(
        100_000,
        ge=0,
        description="Passes of a batch norm layer after which its running statistics decide (batch renormalization).",
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        if self.batch_size < 2:
            raise ConfigError(
                "algo_kwargs.batch_size: batch norm needs at least 2 rows to normalize by, and this is "
                f"{self.batch_size}; use a larger batch_size",
                key="algo_kwargs.batch_size",
            )
        for place, model in (("model", train.model), ("model.critic", train.model.for_critic())):
            if model.blocks != "mlp":
                raise ConfigError(
                    f"{place}.blocks: crossq has no {model.blocks} blocks; set {place}.blocks=mlp",
                    key=f"{place}.blocks",
                )
            if model.layer_norm:
                raise ConfigError(
                    f"{place}.layer_norm: crossq has batch norm instead; set {place}.layer_norm=false",
                    key=f"{place}.layer_norm",
                )
