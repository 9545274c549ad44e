"""Settings of A2C."""

from __future__ import annotations

from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.algorithms.common.optimizer import OptimizerConfig
from rl_training.config.algorithms.common.state_exploration import StateNoiseConfig
from rl_training.config.base import GaeLambda, LearningRate, NormalizeAdvantages, NumSteps, OnPolicyConfig, constant


class AdvantageConfig(OptimizerConfig, OnPolicyConfig):
    """What the loss of A2C and the learner around it need."""

    num_steps: NumSteps = 5
    gae_lambda: GaeLambda = 1.0
    learning_rate: LearningRate = constant(7e-4)
    normalize_advantages: NormalizeAdvantages = False


class A2CConfig(NoveltyConfig, StateNoiseConfig, AdvantageConfig):
    pass
