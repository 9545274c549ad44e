"""Settings of Ape-X with D4PG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.apex import ApexConfig
from rl_training.config.algorithms.d4pg import D4PGConfig
from rl_training.config.base import UnitSchedule, constant

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class ApexD4PGConfig(ApexConfig, D4PGConfig):
    """The settings of D4PG, with prioritized replay."""

    prioritized: bool = Field(True, description="Sample transitions in proportion to their error (prioritized replay).")
    importance_exponent: UnitSchedule = Field(
        constant(0.4), description="How far importance weights correct prioritized sampling; 1 corrects it fully."
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_apex(train, hindsight=self.hindsight)
