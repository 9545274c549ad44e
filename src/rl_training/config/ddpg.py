"""Settings of DDPG."""

from __future__ import annotations

from rl_training.config.base import (
    ActorLearningRate,
    CriticLearningRate,
    ExplorationNoise,
    NoiseType,
    ReplayConfig,
    Tau,
    constant,
)


class DDPGConfig(ReplayConfig):
    actor_learning_rate: ActorLearningRate = constant(1e-3)
    critic_learning_rate: CriticLearningRate = constant(1e-3)
    tau: Tau = 0.005
    exploration_noise: ExplorationNoise = 0.1
    noise_type: NoiseType = "gaussian"
