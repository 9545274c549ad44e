"""Settings of D4PG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.algorithms.common.actor_critic import (
    ActorLearningRate,
    CriticLearningRate,
    DeterministicActorConfig,
    ExplorationNoise,
)
from rl_training.config.algorithms.common.categorical import CategoricalConfig, SupportHigh, SupportLow
from rl_training.config.base import NStep, constant

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class D4PGConfig(CategoricalConfig, DeterministicActorConfig):
    actor_learning_rate: ActorLearningRate = constant(1e-4)
    critic_learning_rate: CriticLearningRate = constant(1e-4)
    n_step: NStep = 5
    exploration_noise: ExplorationNoise = 0.3
    support_low: SupportLow = -150.0
    support_high: SupportHigh = 150.0

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_support()
