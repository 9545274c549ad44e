"""Settings of PPG."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rl_training.config.algorithms.common.minibatches import MinibatchConfig
from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.base import (
    AdamEpsilon,
    ClipRange,
    LearningRate,
    NonNegativeSchedule,
    NormalizeRolloutAdvantages,
    NumSteps,
    UpdateEpochs,
    constant,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class PPGConfig(NoveltyConfig, MinibatchConfig):
    # Untested with traced steps: its two optimizers share parts of one parameter vector.
    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 256
    normalize_advantages: NormalizeRolloutAdvantages = True
    learning_rate: LearningRate = constant(5e-4)
    value_coef: float = Field(1.0, ge=0, description="Weight of the value loss in the policy phase.")
    update_epochs: UpdateEpochs = 1
    clip_range: ClipRange = constant(0.2)
    adam_epsilon: AdamEpsilon = 1e-8
    policy_phases: int = Field(
        32, ge=1, description="Policy phases, one rollout each, before an auxiliary phase over all these rollouts."
    )
    auxiliary_epochs: int = Field(6, ge=1, description="Passes over the stored rollouts in an auxiliary phase.")
    auxiliary_minibatch_size: int = Field(
        256, ge=1, description="Transitions per minibatch in the auxiliary phase (one gradient step)."
    )
    auxiliary_learning_rate: NonNegativeSchedule = Field(
        constant(5e-4), description="Learning rate of the auxiliary phase."
    )
    clone_coef: float = Field(
        1.0, ge=0, description="Weight of the loss that keeps the policy unchanged in the auxiliary phase."
    )

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        stored = self.policy_phases * self.num_steps * train.num_envs
        if self.auxiliary_minibatch_size > stored:
            raise ConfigError(
                f"algo_kwargs.auxiliary_minibatch_size: {self.auxiliary_minibatch_size} exceeds the transitions of an "
                f"auxiliary phase, policy_phases * num_steps * num_envs = {stored}",
                key="algo_kwargs.auxiliary_minibatch_size",
            )
