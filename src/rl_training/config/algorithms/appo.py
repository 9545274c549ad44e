"""Settings of APPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.common.vtrace import VTraceConfig
from rl_training.config.base import (
    AdamEpsilon,
    ClipRange,
    GaeLambda,
    NormalizeAdvantages,
    NumSteps,
    PositiveInteger,
    UpdateEpochs,
    constant,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class APPOConfig(VTraceConfig):
    num_steps: NumSteps = 64
    gae_lambda: GaeLambda = 0.95
    normalize_advantages: NormalizeAdvantages = True
    pg_rho_bar: float = Field(
        1.0,
        gt=0,
        description="Cap on the importance weight in the policy gradient; used only with a target policy.",
    )
    update_epochs: UpdateEpochs = 4
    clip_range: ClipRange = constant(0.2)
    target_update_every: PositiveInteger | None = Field(
        None, description="Environment steps between copies to the target policy; null disables the target policy."
    )
    kl_coef: float = Field(
        0.0, ge=0, description="Weight of the KL divergence from the target policy; 0 disables the penalty."
    )
    adam_epsilon: AdamEpsilon = 1e-5

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        if self.kl_coef > 0 and self.target_update_every is None:
            raise ConfigError(
                f"algo_kwargs.kl_coef: {self.kl_coef} has no effect without a target policy; "
                f"set algo_kwargs.target_update_every too",
                key="algo_kwargs.kl_coef",
            )
