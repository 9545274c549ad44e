"""Settings of SAC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_training.config.base import (
    ActorLearningRate,
    CriticLearningRate,
    NonNegativeSchedule,
    PositiveNumber,
    ReplayConfig,
    Tau,
    constant,
)


class SACConfig(ReplayConfig):
    actor_learning_rate: ActorLearningRate = constant(3e-4)
    critic_learning_rate: CriticLearningRate = constant(3e-4)
    temperature_learning_rate: NonNegativeSchedule = Field(
        constant(3e-4), description="Step size of the temperature's optimizer, when it is learned."
    )
    tau: Tau = 0.005
    temperature: Literal["auto"] | PositiveNumber = Field(
        "auto", description="Weight of entropy against reward; auto learns it."
    )
    initial_temperature: float = Field(1.0, gt=0, description="Where a learned temperature starts.")
    target_entropy: Literal["auto"] | float = Field(
        "auto", description="Entropy a learned temperature aims at; auto is minus the action dimensions."
    )
