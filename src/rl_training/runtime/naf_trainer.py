"""NAF entry point. The algorithm is algorithms/naf.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.naf import NAF
from rl_training.config.naf import NAFConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import CONTINUOUS, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

NAF_SPEC = AlgorithmSpec(
    name="naf",
    title="Normalised advantage functions",
    paper="arXiv:1603.00748",
    config=NAFConfig,
    learner=NAF,
    loop=ReplayLoop,
    actions=CONTINUOUS,
)


def train_naf(config: TrainConfig, **options: Any) -> TrainResult:
    """Train NAF; options as in `workflows.train`."""
    return train(config, **options)
