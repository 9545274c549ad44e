"""Settings of TD3."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.base import (
    ActorLearningRate,
    CriticLearningRate,
    ExplorationNoise,
    NoiseType,
    ReplayConfig,
    Tau,
    constant,
)


class TD3Config(ReplayConfig):
    actor_learning_rate: ActorLearningRate = constant(1e-3)
    critic_learning_rate: CriticLearningRate = constant(1e-3)
    tau: Tau = 0.005
    exploration_noise: ExplorationNoise = 0.1
    noise_type: NoiseType = "gaussian"
    policy_delay: int = Field(2, ge=1, description="Critic updates for each actor and target update.")
    target_noise: float = Field(0.2, ge=0, description="Deviation of the noise that smooths target actions.")
    target_noise_clip: float = Field(0.5, ge=0, description="Largest noise added to a target action.")
