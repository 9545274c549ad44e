"""A2C entry point. The algorithm is algorithms/a2c.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.a2c import A2C
from rl_training.config.a2c import A2CConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

A2C_SPEC = AlgorithmSpec(
    name="a2c",
    title="Advantage actor-critic",
    paper="arXiv:1602.01783",
    config=A2CConfig,
    learner=A2C,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_a2c(config: TrainConfig, **options: Any) -> TrainResult:
    """Train A2C; options as in `workflows.train`."""
    return train(config, **options)
