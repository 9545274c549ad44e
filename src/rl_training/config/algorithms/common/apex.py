"""Settings of Ape-X: actors that fill replay, each at its own pace and with its own exploration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from rl_training.config.algorithms.common.exploration_ladder import LadderConfig
from rl_training.config.base import PositiveInteger, PositiveNumber, UnitSchedule, constant
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class ApexConfig(LadderConfig):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    prioritized: bool = Field(True, description="Sample transitions in proportion to their error (prioritized replay).")
    importance_exponent: UnitSchedule = Field(
        constant(0.4), description="How far importance weights correct prioritized sampling; 1 corrects it fully."
    )
    ticket_steps: PositiveInteger = Field(8, description="Steps of each environment that an actor makes per ticket.")
    samples_per_insert: PositiveNumber | Literal["auto"] | None = Field(
        "auto",
        description="Rows that are sampled per row that actors insert; auto is batch_size * gradient_steps / "
        "train_frequency, null lets actors and learner run freely (async).",
    )

    def check_apex(self, train: TrainConfig, *, hindsight: float) -> None:
        """Refuse a ladder, a ratio or goals that these actors cannot have."""
        runtime = train.runtime
        self.check_ladder(train)
        if self.samples_per_insert is None and runtime.mode != "async":
            raise ConfigError(
                "algo_kwargs.samples_per_insert: null lets actors and learner run freely, which needs "
                "runtime.mode=async; set that, or samples_per_insert=auto",
                key="algo_kwargs.samples_per_insert",
            )
        if self.samples_per_insert not in (None, "auto") and not uses_shards(train):
            raise ConfigError(
                "algo_kwargs.samples_per_insert: one actor in lockstep keeps the ratio by train_frequency and "
                "gradient_steps; set those, or runtime.actors=2 or more",
                key="algo_kwargs.samples_per_insert",
            )
        if hindsight and uses_shards(train):
            raise ConfigError(
                "algo_kwargs.hindsight: not available with actors, set runtime.actors=1 or hindsight=0",
                key="algo_kwargs.hindsight",
            )


def uses_shards(train: TrainConfig) -> bool:
    """Whether the replay of an Ape-X run has a shard per actor. One actor in lockstep fills an ordinary buffer."""
    return isinstance(train.algo_kwargs, ApexConfig) and (train.runtime.actors > 1 or train.runtime.mode == "async")
