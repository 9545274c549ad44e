"""Settings of algorithms whose actors explore differently: Ape-X and R2D2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.base import StrictModel
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class LadderConfig(StrictModel):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    exploration_ladder: bool | None = Field(
        None, description="Give each actor an exploration of its own; null does if there are two actors or more."
    )
    ladder_base: float = Field(
        0.4, gt=0, lt=1, description="Actor i of N explores by ladder_base ** (1 + ladder_exponent * i / (N - 1))."
    )
    ladder_exponent: float = Field(
        7.0, ge=0, description="How fast exploration falls from the first actor to the last."
    )

    def check_ladder(self, train: TrainConfig) -> None:
        """Refuse a ladder of one rung."""
        if self.exploration_ladder and train.runtime.actors == 1:
            raise ConfigError(
                "algo_kwargs.exploration_ladder: one actor makes no ladder; leave it out, or set runtime.actors=2",
                key="algo_kwargs.exploration_ladder",
            )
