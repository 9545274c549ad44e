"""Settings of NAF."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rl_training.config.base import LearningRate, ReplayConfig, Tau, constant


class NAFConfig(ReplayConfig):
    separate_critic: ClassVar[bool] = False

    learning_rate: LearningRate = constant(1e-3)
    tau: Tau = 0.005
    exploration_noise: float = Field(
        0.1,
        ge=0,
        description="Standard deviation of the action noise (actions span -1 to 1), or factor of the precision noise.",
    )
    noise_type: Literal["gaussian", "ou", "precision"] = Field(
        "gaussian",
        description="Independent Gaussian noise, time-correlated noise (ou), or precision: wide where Q is flat.",
    )
