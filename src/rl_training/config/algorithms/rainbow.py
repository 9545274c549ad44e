"""Settings of Rainbow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rl_training.config.algorithms.common.categorical import CategoricalConfig
from rl_training.config.algorithms.common.q_learning import Exploration, QLearningConfig, refuse_blocks
from rl_training.config.base import LearningRate, NStep, constant
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


class RainbowConfig(CategoricalConfig, QLearningConfig):
    """All six parts are on: double, dueling, prioritized, n-step, distributional and noisy. Each can be left out."""

    learning_rate: LearningRate = constant(6.25e-5)
    double: bool = Field(True, description="Select the next action with the online network (double DQN).")
    dueling: bool = Field(True, description="Split the network into state value and advantages (dueling DQN).")
    prioritized: bool = Field(True, description="Sample transitions in proportion to their error (prioritized replay).")
    priority_exponent: float = Field(
        0.5, ge=0, le=1, description="How strongly priorities affect sampling; 0 samples uniformly."
    )
    n_step: NStep = 3
    noisy: bool = Field(True, description="Explore by learned noise on the weights, instead of random actions.")
    initial_sigma: float = Field(
        0.5, gt=0, description="Initial size of the noise, divided by the root of a layer's inputs."
    )
    exploration: Exploration = constant(0.0)

    def without_effect(self) -> frozenset[str]:
        return super().without_effect() | (frozenset() if self.noisy else {"initial_sigma"})

    def check(self, train: TrainConfig) -> None:
        super().check(train)
        self.check_support()
        if self.noisy:
            refuse_blocks(train)
        if self.noisy and self.exploration != constant(0.0):
            raise ConfigError(
                "algo_kwargs.exploration: noisy layers explore already; set exploration=0, or noisy=false for epsilon",
                key="algo_kwargs.exploration",
            )
