"""Settings of PPO."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.algorithms.common.minibatches import MinibatchConfig
from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.algorithms.common.state_exploration import StateNoiseConfig
from rl_training.config.base import AdamEpsilon, ClipRange, NormalizeAdvantages, NumSteps, UpdateEpochs, constant


class ClippedConfig(MinibatchConfig):
    """What PPO and recurrent PPO share."""

    num_steps: NumSteps = 2048
    normalize_advantages: NormalizeAdvantages = True
    update_epochs: UpdateEpochs = 10
    clip_range: ClipRange = constant(0.2)
    value_clip_range: float | None = Field(
        None, gt=0, description="How far values may move from those of the rollout; null disables the clipping."
    )
    target_kl: float | None = Field(
        None, gt=0, description="Stop updating on a rollout when the approximate KL exceeds this; null never stops."
    )
    adam_epsilon: AdamEpsilon = 1e-5

    def why_not_compilable(self) -> str | None:
        if self.compilable and self.target_kl is not None:
            # The step itself decides whether its gradients are applied.
            return "with algo_kwargs.target_kl has no step to compile"
        return super().why_not_compilable()


class PPOConfig(NoveltyConfig, StateNoiseConfig, ClippedConfig):
    pass
