"""SAC entry point. The algorithm is algorithms/sac.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.sac import SAC
from rl_training.config.sac import SACConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import CONTINUOUS, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

SAC_SPEC = AlgorithmSpec(
    name="sac",
    title="Soft actor-critic",
    paper="arXiv:1801.01290",
    config=SACConfig,
    learner=SAC,
    loop=ReplayLoop,
    actions=CONTINUOUS,
)


def train_sac(config: TrainConfig, **options: Any) -> TrainResult:
    """Train SAC; options as in `workflows.train`."""
    return train(config, **options)
