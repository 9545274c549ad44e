"""Settings of PPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.base import (
    MinibatchSize,
    NonNegativeSchedule,
    NormalizeAdvantages,
    NumSteps,
    OnPolicyConfig,
    UpdateEpochs,
    check_minibatch,
    constant,
)

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class PPOConfig(OnPolicyConfig):
    num_steps: NumSteps = 2048
    normalize_advantages: NormalizeAdvantages = True
    minibatch_size: MinibatchSize = 64
    update_epochs: UpdateEpochs = 10
    clip_range: NonNegativeSchedule = Field(
        constant(0.2), description="How far the probability ratio may leave 1 before its gradient stops."
    )
    value_clip_range: float | None = Field(
        None, gt=0, description="How far values may move from the rollout's own; null turns it off."
    )
    target_kl: float | None = Field(
        None, gt=0, description="Stop a rollout's updates once the policy moved this far; null never stops."
    )
    adam_epsilon: float = Field(1e-5, gt=0, description="Keeps Adam's division finite.")

    def check(self, train: TrainConfig) -> None:
        check_minibatch(self.minibatch_size, self.num_steps, train.num_envs)

    def why_not_compilable(self) -> str | None:
        if self.compilable and self.target_kl is not None:
            # Whether a step is taken at all is decided in the middle of it.
            return "with algo_kwargs.target_kl has no step to compile"
        return super().why_not_compilable()
