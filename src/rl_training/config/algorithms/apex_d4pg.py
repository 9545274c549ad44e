"""Settings of Ape-X with D4PG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.algorithms.common.apex import ApexConfig
from rl_training.config.algorithms.d4pg import D4PGConfig

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class ApexD4PGConfig(ApexConfig, D4PGConfig):
    """The settings of D4PG, with prioritized replay."""

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_apex(train, hindsight=self.hindsight)
