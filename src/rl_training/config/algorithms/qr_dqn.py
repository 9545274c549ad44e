"""Settings of QR-DQN."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.algorithms.common.q_learning import QLearningConfig
from rl_training.config.base import LearningRate, constant


class QRDQNConfig(QLearningConfig):
    learning_rate: LearningRate = constant(5e-5)
    num_quantiles: int = Field(
        200, ge=1, le=10_000, description="Number of quantiles of the return distribution of each action."
    )
