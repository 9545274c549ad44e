"""Settings of A2C."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_training.config.base import (
    GaeLambda,
    LearningRate,
    NormalizeAdvantages,
    NumSteps,
    OnPolicyConfig,
    constant,
)


class A2CConfig(OnPolicyConfig):
    num_steps: NumSteps = 5
    gae_lambda: GaeLambda = 1.0
    learning_rate: LearningRate = constant(7e-4)
    normalize_advantages: NormalizeAdvantages = False
    optimizer: Literal["rmsprop", "adam"] = Field("rmsprop", description="Rule that applies the gradients.")
    rmsprop_decay: float = Field(0.99, ge=0, lt=1, description="Memory of RMSprop's running mean of squared gradients.")
    optimizer_epsilon: float = Field(1e-5, gt=0, description="Keeps the optimizer's division finite.")
