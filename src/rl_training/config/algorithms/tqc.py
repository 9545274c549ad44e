"""Settings of TQC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.common.actor_critic import NumCritics, SoftActorCriticConfig
from rl_training.config.algorithms.common.state_exploration import NoiseLogStd, StateNoiseConfig
from rl_training.config.base import Tau
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class TQCConfig(StateNoiseConfig, SoftActorCriticConfig):
    tau: Tau = 0.005
    noise_log_std: NoiseLogStd = -3.0
    num_critics: NumCritics = 2
    num_quantiles: int = Field(25, ge=1, le=10_000, description="Number of quantiles of each critic's distribution.")
    dropped_quantiles: int = Field(
        2, ge=0, description="Quantiles to drop from the top of the target distribution, per critic."
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        if self.dropped_quantiles >= self.num_quantiles:
            raise ConfigError(
                f"algo_kwargs.dropped_quantiles: {self.dropped_quantiles} must be below num_quantiles "
                f"({self.num_quantiles}), otherwise no target is left",
                key="algo_kwargs.dropped_quantiles",
            )
