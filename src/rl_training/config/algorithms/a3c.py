"""Settings of A3C."""

from __future__ import annotations

from typing import ClassVar

from rl_training.config.algorithms.a2c import AdvantageConfig


class A3CConfig(AdvantageConfig):
    """The settings of A2C, whose loss A3C has."""

    compilable: ClassVar[bool] = False  # the gradient is computed by one process and applied by another
    pushes_gradients: ClassVar[bool] = True

    def why_not_compilable(self) -> str | None:
        return "computes its gradients in actors and has no step to compile"
