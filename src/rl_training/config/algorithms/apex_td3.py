"""Settings of Ape-X with TD3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.algorithms.common.apex import ApexConfig
from rl_training.config.algorithms.td3 import TD3Config
from rl_training.config.base import NStep

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class ApexTD3Config(ApexConfig, TD3Config):
    """The settings of TD3, with prioritized replay and three steps."""

    n_step: NStep = 3

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_apex(train, hindsight=self.hindsight)
