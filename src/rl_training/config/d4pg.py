"""Settings of D4PG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.config.base import (
    ActorLearningRate,
    CriticLearningRate,
    ExplorationNoise,
    NoiseType,
    NStep,
    ReplayConfig,
    Tau,
    constant,
)
from rl_training.config.categorical import NumAtoms, SupportHigh, SupportLow, check_support

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class D4PGConfig(ReplayConfig):
    actor_learning_rate: ActorLearningRate = constant(1e-4)
    critic_learning_rate: CriticLearningRate = constant(1e-4)
    n_step: NStep = 5
    tau: Tau = 0.005
    exploration_noise: ExplorationNoise = 0.3
    noise_type: NoiseType = "gaussian"
    num_atoms: NumAtoms = 51
    support_low: SupportLow = -150.0
    support_high: SupportHigh = 150.0

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        check_support(self.support_low, self.support_high)
