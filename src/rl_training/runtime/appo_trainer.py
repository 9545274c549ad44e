"""APPO entry point. The algorithm is algorithms/appo.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.appo import APPO
from rl_training.config.appo import APPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

APPO_SPEC = AlgorithmSpec(
    name="appo",
    title="Asynchronous proximal policy optimisation (V-trace)",
    paper="arXiv:2006.11751",
    config=APPOConfig,
    learner=APPO,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_appo(config: TrainConfig, **options: Any) -> TrainResult:
    """Train APPO; options as in `workflows.train`."""
    return train(config, **options)
