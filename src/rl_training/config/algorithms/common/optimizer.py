"""Settings of the optimizer for A2C and IMPALA, which use RMSprop by default."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_training.config.base import StrictModel


class OptimizerConfig(StrictModel):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    optimizer: Literal["rmsprop", "adam"] = Field("rmsprop", description="Optimizer that applies the gradients.")
    rmsprop_decay: float = Field(0.99, ge=0, lt=1, description="Decay of RMSprop's running mean of squared gradients.")
    optimizer_epsilon: float = Field(
        1e-5, gt=0, description="Epsilon of the optimizer: keeps its denominator above zero."
    )
