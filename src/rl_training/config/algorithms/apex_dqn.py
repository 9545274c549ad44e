"""Settings of Ape-X DQN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.common.apex import ApexConfig
from rl_training.config.algorithms.common.q_learning import QLearningConfig
from rl_training.config.base import BatchSize, MaxGradNorm, NStep

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class ApexDQNConfig(ApexConfig, QLearningConfig):
    """The settings of DQN's family, with the parts that Ape-X DQN has: double, dueling, prioritized and n-step."""

    batch_size: BatchSize = 512
    max_grad_norm: MaxGradNorm = 40.0
    n_step: NStep = 3
    double: bool = Field(True, description="Select the next action with the online network (double DQN).")
    dueling: bool = Field(True, description="Split the network into state value and advantages (dueling DQN).")

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_apex(train, hindsight=self.hindsight)
