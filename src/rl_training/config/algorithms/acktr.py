"""Settings of ACKTR."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.base import (
    GaeLambda,
    LearningRate,
    MaxGradNorm,
    NonNegativeSchedule,
    NormalizeAdvantages,
    NumSteps,
    OnPolicyConfig,
    constant,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class ACKTRConfig(NoveltyConfig, OnPolicyConfig):
    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 20
    gae_lambda: GaeLambda = 1.0
    learning_rate: LearningRate = constant(0.25)
    max_grad_norm: MaxGradNorm = None
    normalize_advantages: NormalizeAdvantages = False
    max_kl: NonNegativeSchedule = Field(
        constant(0.001), description="Largest KL divergence of a step, as the Kronecker factors predict it."
    )
    damping: float = Field(
        0.01, gt=0, description="Added to the Fisher matrix before it is inverted; larger values are closer to SGD."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Share of the steps before in each step.")
    statistics_decay: float = Field(
        0.99, ge=0, lt=1, description="Decay of the running averages of the Kronecker factors per update."
    )
    inverse_every: int = Field(
        10, ge=1, description="Updates between two decompositions of the Kronecker factors, which cost the most."
    )
    fisher_coef: float = Field(
        1.0, gt=0, description="Weight of the value in the Fisher matrix: the inverse variance of its Gaussian."
    )

    def why_not_compilable(self) -> str | None:
        return "watches the layers of its networks with hooks, and has no step to compile"

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        model = train.model
        for name, part in (("model", model), ("model.critic", model.for_critic())):
            if part.layer_norm or part.blocks != "mlp":
                field = "layer_norm" if part.layer_norm else "blocks"
                fix = "false" if part.layer_norm else "mlp"
                raise ConfigError(
                    f"{name}.{field}: acktr has no layer norm, because K-FAC knows linear and convolutional layers "
                    f"only; set {name}.{field}={fix}",
                    key=f"{name}.{field}",
                )
