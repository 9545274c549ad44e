"""DQN entry point. The algorithm is algorithms/dqn.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.dqn import DQN
from rl_training.config.dqn import DQNConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import DISCRETE, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

DQN_SPEC = AlgorithmSpec(
    name="dqn",
    title="Deep Q-learning",
    paper="Nature 518 (2015)",
    config=DQNConfig,
    learner=DQN,
    loop=ReplayLoop,
    actions=DISCRETE,
)


def train_dqn(config: TrainConfig, **options: Any) -> TrainResult:
    """Train DQN; options as in `workflows.train`."""
    return train(config, **options)
