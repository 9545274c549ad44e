"""MPO entry point. The algorithm is algorithms/mpo.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.mpo import MPO
from rl_training.config.mpo import MPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import CONTINUOUS, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

MPO_SPEC = AlgorithmSpec(
    name="mpo",
    title="Maximum a posteriori policy optimisation",
    paper="arXiv:1806.06920",
    config=MPOConfig,
    learner=MPO,
    loop=ReplayLoop,
    actions=CONTINUOUS,
)


def train_mpo(config: TrainConfig, **options: Any) -> TrainResult:
    """Train MPO; options as in `workflows.train`."""
    return train(config, **options)
