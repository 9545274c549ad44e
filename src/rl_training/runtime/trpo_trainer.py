"""TRPO entry point. The algorithm is algorithms/trpo.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.trpo import TRPO
from rl_training.config.train_config import TrainConfig
from rl_training.config.trpo import TRPOConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

TRPO_SPEC = AlgorithmSpec(
    name="trpo",
    title="Trust region policy optimisation",
    paper="arXiv:1502.05477",
    config=TRPOConfig,
    learner=TRPO,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_trpo(config: TrainConfig, **options: Any) -> TrainResult:
    """Train TRPO; options as in `workflows.train`."""
    return train(config, **options)
