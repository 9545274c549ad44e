"""Settings of DQN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.algorithms.common.munchausen import MunchausenConfig
from rl_training.config.algorithms.common.q_learning import QLearningConfig

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class DQNConfig(MunchausenConfig, QLearningConfig):
    """DQN adds only Munchausen targets to the settings of its family."""

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_munchausen(double=self.double, n_step=self.n_step)
