"""Settings of C51."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.base import LearningRate, constant
from rl_training.config.categorical import NumAtoms, SupportHigh, SupportLow, check_support
from rl_training.config.q_learning import QLearningConfig

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class C51Config(QLearningConfig):
    learning_rate: LearningRate = constant(2.5e-4)
    num_atoms: NumAtoms = 51
    support_low: SupportLow = -10.0
    support_high: SupportHigh = 10.0

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        check_support(self.support_low, self.support_high)
