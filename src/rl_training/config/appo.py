"""Settings of APPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.base import (
    GaeLambda,
    NonNegativeSchedule,
    NormalizeAdvantages,
    NumSteps,
    PositiveInteger,
    UpdateEpochs,
    constant,
)
from rl_training.config.vtrace import VTraceConfig
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
        description="Cap of the importance weight of the policy gradient; only a target network has use for it.",
    )
    update_epochs: UpdateEpochs = 4
    clip_range: NonNegativeSchedule = Field(
        constant(0.2), description="How far the probability ratio may leave 1 before its gradient stops."
    )
    target_update_every: PositiveInteger | None = Field(
        None, description="Env steps between copies to the target policy; null does without one."
    )
    kl_coef: float = Field(0.0, ge=0, description="Weight of the divergence from the target policy; 0 turns it off.")
    adam_epsilon: float = Field(1e-5, gt=0, description="Keeps Adam's division finite.")

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        if self.kl_coef > 0 and self.target_update_every is None:
            raise ConfigError(
                f"algo_kwargs.kl_coef: {self.kl_coef} has no effect without a target policy, "
                f"set algo_kwargs.target_update_every too",
                key="algo_kwargs.kl_coef",
            )
