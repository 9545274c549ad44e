"""Settings of TRPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rl_training.config.base import (
    LearningRate,
    MaxGradNorm,
    MinibatchSize,
    NonNegativeSchedule,
    NumSteps,
    OnPolicyConfig,
    UpdateEpochs,
    check_minibatch,
    constant,
)

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class TRPOConfig(OnPolicyConfig):
    """The policy step has no learning rate: `learning_rate` and everything about minibatches is the critic's."""

    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 2048
    normalize_advantages: bool = Field(True, description="Give the advantages of a rollout mean 0 and deviation 1.")
    learning_rate: LearningRate = constant(1e-3)
    max_grad_norm: MaxGradNorm = None
    minibatch_size: MinibatchSize = 64
    update_epochs: UpdateEpochs = 10
    max_kl: NonNegativeSchedule = Field(
        constant(0.01), description="How far one update may move the policy: mean KL of the old from the new."
    )
    damping: float = Field(
        0.1, ge=0, description="Added to the Fisher matrix before it is inverted, which keeps steps short."
    )
    conjugate_gradient_steps: int = Field(10, ge=1, description="Steps to invert the Fisher matrix in.")
    line_search_steps: int = Field(10, ge=1, description="Step lengths tried before an update is given up.")
    line_search_decay: float = Field(
        0.8, gt=0, lt=1, description="Each length the line search tries is this share of the last."
    )

    def check(self, train: TrainConfig) -> None:
        check_minibatch(self.minibatch_size, self.num_steps, train.num_envs)
