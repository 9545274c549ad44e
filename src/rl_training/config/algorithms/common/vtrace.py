"""Settings that IMPALA and APPO share: V-trace and minibatches of whole trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rl_training.config.base import GaeLambda, NormalizeAdvantages, OnPolicyConfig
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class VTraceConfig(OnPolicyConfig):
    compilable: ClassVar[bool] = False

    gae_lambda: GaeLambda = 1.0
    normalize_advantages: NormalizeAdvantages = False
    rho_bar: float = Field(
        1.0, gt=0, description="Cap on the importance weight of each TD error; sets which policy the values describe."
    )
    c_bar: float = Field(1.0, gt=0, description="Cap on the trace weights; sets how far later TD errors reach back.")
    pg_rho_bar: float = Field(1.0, gt=0, description="Cap on the importance weight in the policy gradient.")
    num_minibatches: int = Field(
        1, ge=1, description="Minibatches per rollout, each made of whole environments; must divide num_envs."
    )

    def check(self, train: TrainConfig) -> None:
        if train.num_envs % self.num_minibatches:
            raise ConfigError(
                f"algo_kwargs.num_minibatches: {self.num_minibatches} does not divide num_envs ({train.num_envs}); "
                f"V-trace needs whole trajectories, so a minibatch consists of whole environments",
                key="algo_kwargs.num_minibatches",
            )
