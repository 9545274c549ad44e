"""Settings of REDQ and DroQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rl_training.config.algorithms.common.actor_critic import NumCritics, SoftActorCriticConfig
from rl_training.config.base import PositiveInteger, Tau
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig

DropoutRate = Annotated[
    float, Field(ge=0, lt=1, description="Share of the critics' hidden units to drop in every pass.")
]


class REDQConfig(SoftActorCriticConfig):
    gradient_steps: Literal[-1] | PositiveInteger = Field(
        20, description="Gradient steps per round; -1 means one per environment step since the last round."
    )
    policy_delay: int = Field(20, ge=1, description="Critic updates per update of the actor and of the temperature.")
    tau: Tau = 0.005
    num_critics: NumCritics = 10
    target_critics: int = Field(
        2, ge=1, description="Critics, drawn anew in every update, whose minimum is the target."
    )
    dropout: DropoutRate = 0.0

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        if self.target_critics > self.num_critics:
            raise ConfigError(
                f"algo_kwargs.target_critics: {self.target_critics} must be at most num_critics ({self.num_critics})",
                key="algo_kwargs.target_critics",
            )
        if self.dropout and train.model.for_critic().blocks != "mlp":
            raise ConfigError(
                f"model.critic.blocks: {train.algo} has no dropout in simba blocks; set model.critic.blocks=mlp, or "
                "algo_kwargs.dropout=0",
                key="model.critic.blocks",
            )


class DroQConfig(REDQConfig):
    num_critics: NumCritics = 2
    dropout: DropoutRate = 0.01
