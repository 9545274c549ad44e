"""Settings of MPO."""

from __future__ import annotations

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


class MPOConfig(ReplayConfig):
    actor_learning_rate: ActorLearningRate = constant(3e-4)
    critic_learning_rate: CriticLearningRate = constant(3e-4)
    dual_learning_rate: NonNegativeSchedule = Field(
        constant(1e-2), description="Step size of the optimizer of the temperature and of the bounds' multipliers."
    )
    tau: Tau = 0.005
    num_action_samples: int = Field(20, ge=1, description="Actions drawn from the target policy at each state.")
    improvement_kl: float = Field(
        0.1, gt=0, description="How far, in KL, the reweighted actions may be from the target policy."
    )
    mean_kl: float = Field(
        1e-3, gt=0, description="How far, in KL per dimension, the policy's mean may be from the target policy's."
    )
    covariance_kl: float = Field(
        1e-6, gt=0, description="How far, in KL per dimension, the policy's spread may be from the target policy's."
    )
    penalty_kl: PositiveNumber | None = Field(
        None, description="How far, in KL, actions out of bounds may push the policy back inside; null is not at all."
    )
    initial_temperature: float = Field(1.0, gt=0, description="Where a learned temperature starts.")
    initial_mean_multiplier: float = Field(
        1.0, gt=0, description="Where the weight of the bound on the policy's mean starts."
    )
    initial_covariance_multiplier: float = Field(
        10.0, gt=0, description="Where the weight of the bound on the policy's spread starts."
    )
