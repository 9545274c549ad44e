"""C51 entry point. The algorithm is algorithms/c51.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.c51 import C51
from rl_training.config.c51 import C51Config
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import DISCRETE, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

C51_SPEC = AlgorithmSpec(
    name="c51",
    title="Distributional Q-learning (C51)",
    paper="arXiv:1707.06887",
    config=C51Config,
    learner=C51,
    loop=ReplayLoop,
    actions=DISCRETE,
)


def train_c51(config: TrainConfig, **options: Any) -> TrainResult:
    """Train C51; options as in `workflows.train`."""
    return train(config, **options)
