"""IMPALA entry point. The algorithm is algorithms/impala.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.impala import IMPALA
from rl_training.config.impala import IMPALAConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

IMPALA_SPEC = AlgorithmSpec(
    name="impala",
    title="Importance-weighted actor-learner (V-trace)",
    paper="arXiv:1802.01561",
    config=IMPALAConfig,
    learner=IMPALA,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_impala(config: TrainConfig, **options: Any) -> TrainResult:
    """Train IMPALA; options as in `workflows.train`."""
    return train(config, **options)
