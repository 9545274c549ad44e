"""Settings of MPO."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.algorithms.common.actor_critic import ActorCriticConfig, InitialTemperature
from rl_training.config.base import NonNegativeSchedule, PositiveNumber, Tau, constant


class MPOConfig(ActorCriticConfig):
    dual_learning_rate: NonNegativeSchedule = Field(
        constant(1e-2), description="Learning rate of the temperature and of the multipliers of the KL bounds."
    )
    tau: Tau = 0.005
    num_action_samples: int = Field(
        20, ge=1, le=10_000, description="Actions sampled from the target policy in each state."
    )
    improvement_kl: float = Field(
        0.1, gt=0, description="Largest KL divergence of the reweighted actions from the target policy."
    )
    mean_kl: float = Field(
        1e-3, gt=0, description="Largest KL divergence per action dimension due to a change of the policy's mean."
    )
    covariance_kl: float = Field(
        1e-6, gt=0, description="Largest KL divergence per action dimension due to a change of the policy's covariance."
    )
    penalty_kl: PositiveNumber | None = Field(
        None, description="KL bound of the penalty on actions outside [-1, 1]; null disables the penalty."
    )
    initial_temperature: InitialTemperature = 1.0
    initial_mean_multiplier: float = Field(1.0, gt=0, description="Initial multiplier of the bound on the mean.")
    initial_covariance_multiplier: float = Field(
        10.0, gt=0, description="Initial multiplier of the bound on the covariance."
    )
