"""Settings of A2C."""

from __future__ import annotations

from rl_training.config.algorithms.optimizer import OptimizerConfig
from rl_training.config.algorithms.state_noise import StateNoiseConfig
from rl_training.config.base import GaeLambda, LearningRate, NormalizeAdvantages, NumSteps, OnPolicyConfig, constant


class A2CConfig(StateNoiseConfig, OptimizerConfig, OnPolicyConfig):
    num_steps: NumSteps = 5
    gae_lambda: GaeLambda = 1.0
    learning_rate: LearningRate = constant(7e-4)
    normalize_advantages: NormalizeAdvantages = False
