"""Settings of ACER."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl_training.config.algorithms.common.optimizer import OptimizerConfig
from rl_training.config.base import (
    LearningRate,
    MaxGradNorm,
    NonNegativeSchedule,
    NumSteps,
    RolloutReplayConfig,
    constant,
)


class ACERConfig(OptimizerConfig, RolloutReplayConfig):
    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 20
    learning_rate: LearningRate = constant(7e-4)
    max_grad_norm: MaxGradNorm = 10.0
    importance_cap: float = Field(
        10.0, gt=0, description="Cap c of importance weights in the policy gradient; what it cuts off is corrected."
    )
    retrace_lambda: float = Field(1.0, ge=0, le=1, description="Lambda of Retrace: how far returns reach.")
    max_kl: float | None = Field(
        1.0, gt=0, description="How far a gradient may move from the average policy (delta); null disables the bound."
    )
    average_decay: float = Field(
        0.99, ge=0, lt=1, description="Decay of the average policy's weights per update (alpha)."
    )
    value_coef: float = Field(0.5, ge=0, description="Weight of the loss of Q.")
    entropy_coef: NonNegativeSchedule = Field(
        constant(0.01), description="Weight of the entropy bonus, which encourages exploration."
    )

    def without_effect(self) -> frozenset[str]:
        unused = super().without_effect()
        return unused | ({"average_decay"} if self.max_kl is None else frozenset())

    def why_not_compilable(self) -> str | None:
        return "learns from windows of many lengths, and has no step to compile"
