"""Settings of IQN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.common.munchausen import MunchausenConfig
from rl_training.config.algorithms.common.q_learning import QLearningConfig, refuse_blocks
from rl_training.config.base import LearningRate, constant

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class IQNConfig(MunchausenConfig, QLearningConfig):
    learning_rate: LearningRate = constant(5e-5)
    num_taus: int = Field(64, ge=1, le=10_000, description="Fractions per row at which quantiles are fitted (N).")
    num_target_taus: int = Field(64, ge=1, le=10_000, description="Fractions per row of the target (N').")
    num_acting_taus: int = Field(
        32, ge=1, le=10_000, description="Fractions whose mean is the value of an action, when it is chosen (K)."
    )
    num_cosines: int = Field(64, ge=1, le=10_000, description="Cosines that represent a fraction.")
    risk_level: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Choose actions by the mean of this worst share of their returns (CVaR); 1 is the mean of all.",
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        refuse_blocks(train)
        self.check_munchausen(double=self.double, n_step=self.n_step)
