"""Settings of SAC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_training.config.algorithms.actor_critic import ActorCriticConfig, InitialTemperature
from rl_training.config.algorithms.state_exploration import NoiseLogStd, StateNoiseConfig
from rl_training.config.base import NonNegativeSchedule, PositiveNumber, Tau, constant


class SACConfig(StateNoiseConfig, ActorCriticConfig):
    temperature_learning_rate: NonNegativeSchedule = Field(
        constant(3e-4), description="Learning rate of the temperature, if it is learned."
    )
    tau: Tau = 0.005
    noise_log_std: NoiseLogStd = -3.0
    temperature: Literal["auto"] | PositiveNumber = Field(
        "auto", description="Weight of the entropy relative to the reward; auto learns it."
    )
    initial_temperature: InitialTemperature = 1.0
    target_entropy: Literal["auto"] | float = Field(
        "auto", description="Entropy that a learned temperature aims for; auto is minus the action dimension."
    )
