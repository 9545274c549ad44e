"""Settings of recurrent PPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rl_training.config.base import MinibatchSize, NumSteps
from rl_training.config.ppo import PPOConfig
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class RecurrentPPOConfig(PPOConfig):
    # Sequences are as long as the episodes are: hardly two minibatches have the same shape.
    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 128
    minibatch_size: MinibatchSize = 128
    cell: Literal["lstm", "gru"] = Field("lstm", description="Kind of memory.")
    memory_size: int = Field(64, ge=1, description="Width of the memory, its hidden size.")
    memory_layers: int = Field(1, ge=1, description="Recurrent layers on top of each other.")
    shared_memory: bool = Field(False, description="Let policy and value read one memory; otherwise each has its own.")
    sequence_length: int = Field(
        32, ge=1, description="Most steps that gradients run back through; sequences also end where episodes do."
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        for name in ("num_steps", "minibatch_size"):
            if self.sequence_length > getattr(self, name):
                raise ConfigError(
                    f"algo_kwargs.sequence_length: {self.sequence_length} is more than {name} "
                    f"({getattr(self, name)}); a minibatch of a rollout is made of whole sequences",
                    key="algo_kwargs.sequence_length",
                )
