"""Settings of IMPALA."""

from __future__ import annotations

from rl_training.config.algorithms.common.optimizer import OptimizerConfig
from rl_training.config.algorithms.common.vtrace import VTraceConfig
from rl_training.config.base import LearningRate, NumSteps, constant


class IMPALAConfig(OptimizerConfig, VTraceConfig):
    num_steps: NumSteps = 20
    learning_rate: LearningRate = constant(6e-4)
