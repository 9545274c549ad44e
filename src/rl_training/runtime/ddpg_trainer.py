"""DDPG entry point. The algorithm is algorithms/ddpg.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.ddpg import DDPG
from rl_training.config.ddpg import DDPGConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import CONTINUOUS, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

DDPG_SPEC = AlgorithmSpec(
    name="ddpg",
    title="Deep deterministic policy gradient",
    paper="arXiv:1509.02971",
    config=DDPGConfig,
    learner=DDPG,
    loop=ReplayLoop,
    actions=CONTINUOUS,
)


def train_ddpg(config: TrainConfig, **options: Any) -> TrainResult:
    """Train DDPG; options as in `workflows.train`."""
    return train(config, **options)
