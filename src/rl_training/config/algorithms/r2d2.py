"""Settings of R2D2."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rl_training.config.algorithms.common.exploration_ladder import LadderConfig
from rl_training.config.algorithms.common.q_learning import QLearningConfig
from rl_training.config.base import NStep, PositiveNumber, UnitSchedule, constant
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class R2D2Config(LadderConfig, QLearningConfig):
    compilable: ClassVar[bool] = False
    refused: ClassVar[frozenset[str]] = frozenset({"hindsight"})

    batch_size: int = Field(32, ge=1, description="Windows sampled from the replay buffer per gradient step.")
    n_step: NStep = 5
    double: bool = Field(True, description="Select the next action with the online network (double Q-learning).")
    dueling: bool = Field(True, description="Split the network into state value and advantages.")
    prioritized: bool = Field(True, description="Sample windows in proportion to their error (prioritized replay).")
    priority_exponent: float = Field(
        0.9, ge=0, le=1, description="How strongly priorities affect sampling; 0 samples uniformly."
    )
    importance_exponent: UnitSchedule = Field(
        constant(0.6), description="How far importance weights correct prioritized sampling; 1 corrects it fully."
    )
    cell: Literal["lstm", "gru"] = Field("lstm", description="Type of the recurrent layers.")
    memory_size: int = Field(64, ge=1, le=65_536, description="Hidden size of the recurrent layers.")
    memory_layers: int = Field(1, ge=1, le=100, description="Number of stacked recurrent layers.")
    sequence_length: int = Field(
        80, ge=1, description="Longest window to replay, its burn-in included; windows also end with their episode."
    )
    burn_in: int = Field(
        40, ge=0, description="First steps of a window that only refresh its memory; fewer if its episode has fewer."
    )
    stored_state: bool = Field(
        True, description="Start windows from the memory that the policy had there; false starts them empty (DRQN)."
    )
    rescaling: PositiveNumber | None = Field(
        1e-3, description="Epsilon of the rescaling of values, h(x); null learns values as they are."
    )

    @property
    def window(self) -> tuple[int, int]:
        return self.sequence_length - self.burn_in, self.burn_in

    def why_not_compilable(self) -> str | None:
        return "learns from windows of many lengths, and has no step to compile"

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_ladder(train)
        if self.burn_in >= self.sequence_length:
            raise ConfigError(
                f"algo_kwargs.burn_in: {self.burn_in} must be below sequence_length ({self.sequence_length}), "
                "otherwise a window has no step to learn from",
                key="algo_kwargs.burn_in",
            )
        if self.buffer_size < self.sequence_length * train.num_envs:
            raise ConfigError(
                f"algo_kwargs.buffer_size: {self.buffer_size} must be at least sequence_length * num_envs "
                f"({self.sequence_length * train.num_envs})",
                key="algo_kwargs.buffer_size",
            )
        if self.hindsight:
            raise ConfigError(
                "algo_kwargs.hindsight: r2d2 replays whole windows and cannot change their goals; set hindsight=0, or "
                "use dqn",
                key="algo_kwargs.hindsight",
            )
