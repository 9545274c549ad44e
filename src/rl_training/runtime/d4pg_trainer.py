"""D4PG entry point. The algorithm is algorithms/d4pg.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.d4pg import D4PG
from rl_training.config.d4pg import D4PGConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import CONTINUOUS, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

D4PG_SPEC = AlgorithmSpec(
    name="d4pg",
    title="Distributional deterministic policy gradient",
    paper="arXiv:1804.08617",
    config=D4PGConfig,
    learner=D4PG,
    loop=ReplayLoop,
    actions=CONTINUOUS,
)


def train_d4pg(config: TrainConfig, **options: Any) -> TrainResult:
    """Train D4PG; options as in `workflows.train`."""
    return train(config, **options)
