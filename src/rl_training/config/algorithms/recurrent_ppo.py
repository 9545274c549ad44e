"""Settings of recurrent PPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rl_training.config.algorithms.common.minibatches import MinibatchSize
from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.algorithms.ppo import ClippedConfig
from rl_training.config.base import NumSteps
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class RecurrentPPOConfig(NoveltyConfig, ClippedConfig):
    # Sequences end with their episodes, so minibatches rarely have the same shape.
    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 128
    minibatch_size: MinibatchSize = 128
    cell: Literal["lstm", "gru"] = Field("lstm", description="Type of the recurrent layers.")
    memory_size: int = Field(64, ge=1, le=65_536, description="Hidden size of the recurrent layers.")
    memory_layers: int = Field(1, ge=1, le=100, description="Number of stacked recurrent layers.")
    shared_memory: bool = Field(
        False, description="Share one recurrent network between policy and value; otherwise each has one."
    )
    sequence_length: int = Field(
        32, ge=1, description="Longest sequence to backpropagate through; sequences also end with their episode."
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        for name in ("num_steps", "minibatch_size"):
            if self.sequence_length > getattr(self, name):
                raise ConfigError(
                    f"algo_kwargs.sequence_length: {self.sequence_length} exceeds {name} ({getattr(self, name)}); "
                    f"a minibatch consists of whole sequences",
                    key="algo_kwargs.sequence_length",
                )
