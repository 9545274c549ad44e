"""Settings of PQN."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl_training.config.algorithms.common.minibatches import MinibatchRolloutConfig
from rl_training.config.algorithms.common.q_learning import Exploration
from rl_training.config.base import LearningRate, MaxGradNorm, NumSteps, Schedule, UpdateEpochs, constant


class PQNConfig(MinibatchRolloutConfig):
    separate_critic: ClassVar[bool] = False

    num_steps: NumSteps = 128
    update_epochs: UpdateEpochs = 4
    learning_rate: LearningRate = constant(2.5e-4)
    max_grad_norm: MaxGradNorm = 10.0
    exploration: Exploration = Schedule(start=1.0, end=0.05)
    q_lambda: float = Field(
        0.65, ge=0, le=1, description="Lambda of the returns: 0 bootstraps after one step, 1 where the rollout ends."
    )
