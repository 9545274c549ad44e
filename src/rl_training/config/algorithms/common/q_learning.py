"""Settings of the family of DQN: epsilon-greedy Q-learning with a target network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from rl_training.config.base import (
    BatchSize,
    LearningRate,
    MaxGradNorm,
    ReplayConfig,
    Schedule,
    Tau,
    TrainFrequency,
    UnitSchedule,
    constant,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig

Exploration = Annotated[UnitSchedule, Field(description="Probability of a random action (epsilon).")]


def refuse_blocks(train: TrainConfig) -> None:
    """For networks whose layers cannot be residual blocks."""
    if train.model.blocks != "mlp":
        raise ConfigError(
            f"model.blocks: {train.algo} has no {train.model.blocks} blocks; set model.blocks=mlp", key="model.blocks"
        )


class QLearningConfig(ReplayConfig):
    separate_critic: ClassVar[bool] = False

    learning_rate: LearningRate = constant(1e-4)
    batch_size: BatchSize = 32
    train_frequency: TrainFrequency = 4
    max_grad_norm: MaxGradNorm = 10.0
    exploration: Exploration = Schedule(start=1.0, end=0.05)
    target_update_every: int = Field(
        10_000, ge=1, description="Environment steps between full copies to the target network."
    )
    tau: Tau | None = Field(
        None, description="Move the target network by this fraction per gradient step, instead of full copies."
    )
    double: bool = Field(False, description="Select the next action with the online network (double DQN).")
    dueling: bool = Field(False, description="Split the network into state value and advantages (dueling DQN).")
