"""Settings of C51."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.algorithms.common.categorical import CategoricalConfig
from rl_training.config.algorithms.common.q_learning import QLearningConfig
from rl_training.config.base import LearningRate, constant

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class C51Config(CategoricalConfig, QLearningConfig):
    learning_rate: LearningRate = constant(2.5e-4)

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_support()
