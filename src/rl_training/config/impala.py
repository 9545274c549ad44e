"""Settings of IMPALA."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_training.config.base import LearningRate, NumSteps, constant
from rl_training.config.vtrace import VTraceConfig


class IMPALAConfig(VTraceConfig):
    num_steps: NumSteps = 20
    learning_rate: LearningRate = constant(6e-4)
    optimizer: Literal["rmsprop", "adam"] = Field("rmsprop", description="Rule that applies the gradients.")
    rmsprop_decay: float = Field(0.99, ge=0, lt=1, description="Memory of RMSprop's running mean of squared gradients.")
    optimizer_epsilon: float = Field(1e-5, gt=0, description="Keeps the optimizer's division finite.")
