"""Settings of TRPO."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl_training.config.algorithms.common.minibatches import MinibatchConfig
from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.base import (
    LearningRate,
    MaxGradNorm,
    NonNegativeSchedule,
    NormalizeRolloutAdvantages,
    NumSteps,
    UpdateEpochs,
    constant,
)


class TRPOConfig(NoveltyConfig, MinibatchConfig):
    """The policy step has no learning rate: `learning_rate`, minibatches and epochs belong to the critic."""

    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 2048
    normalize_advantages: NormalizeRolloutAdvantages = True
    learning_rate: LearningRate = constant(1e-3)
    max_grad_norm: MaxGradNorm = None
    update_epochs: UpdateEpochs = 10
    max_kl: NonNegativeSchedule = Field(
        constant(0.01), description="Largest mean KL divergence between the old and the new policy of an update."
    )
    damping: float = Field(
        0.1, ge=0, description="Added to the diagonal of the Fisher matrix; larger values shorten the steps."
    )
    conjugate_gradient_steps: int = Field(
        10, ge=1, description="Iterations of the conjugate gradient method that inverts the Fisher matrix."
    )
    line_search_steps: int = Field(10, ge=1, description="Step lengths to try before an update is skipped.")
    line_search_decay: float = Field(
        0.8, gt=0, lt=1, description="Ratio of each step length in the line search to the previous one."
    )
