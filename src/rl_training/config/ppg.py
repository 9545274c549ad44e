"""Settings of PPG."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from rl_training.config.base import (
    LearningRate,
    MinibatchSize,
    NonNegativeSchedule,
    NumSteps,
    OnPolicyConfig,
    UpdateEpochs,
    check_minibatch,
    constant,
)
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class PPGConfig(OnPolicyConfig):
    # Not tried since steps are traced: its two optimizers work on overlapping parts of one vector.
    compilable: ClassVar[bool] = False

    num_steps: NumSteps = 256
    normalize_advantages: bool = Field(True, description="Give the advantages of a rollout mean 0 and deviation 1.")
    learning_rate: LearningRate = constant(5e-4)
    value_coef: float = Field(1.0, ge=0, description="Weight of the value loss in the policy phase.")
    minibatch_size: MinibatchSize = 64
    update_epochs: UpdateEpochs = 1
    clip_range: NonNegativeSchedule = Field(
        constant(0.2), description="How far the probability ratio may leave 1 before its gradient stops."
    )
    adam_epsilon: float = Field(1e-8, gt=0, description="Keeps Adam's division finite.")
    policy_phases: int = Field(
        32, ge=1, description="Rollouts, each with its policy phase, before one auxiliary phase over all of them."
    )
    auxiliary_epochs: int = Field(6, ge=1, description="Passes over all those rollouts in an auxiliary phase.")
    auxiliary_minibatch_size: int = Field(
        256, ge=1, description="Transitions in one gradient step of the auxiliary phase."
    )
    auxiliary_learning_rate: NonNegativeSchedule = Field(
        constant(5e-4), description="Step size of the auxiliary phase's own optimizer."
    )
    clone_coef: float = Field(
        1.0, ge=0, description="Weight of staying with the policy as it was before the auxiliary phase."
    )

    def check(self, train: TrainConfig) -> None:
        check_minibatch(self.minibatch_size, self.num_steps, train.num_envs)
        cached = self.policy_phases * self.num_steps * train.num_envs
        if self.auxiliary_minibatch_size > cached:
            raise ConfigError(
                f"algo_kwargs.auxiliary_minibatch_size: {self.auxiliary_minibatch_size} is more than an auxiliary "
                f"phase has, policy_phases * num_steps * num_envs = {cached}",
                key="algo_kwargs.auxiliary_minibatch_size",
            )
