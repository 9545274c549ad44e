"""PPG entry point. The algorithm is algorithms/ppg.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.ppg import PPG
from rl_training.config.ppg import PPGConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

PPG_SPEC = AlgorithmSpec(
    name="ppg",
    title="Phasic policy gradient",
    paper="arXiv:2009.04416",
    config=PPGConfig,
    learner=PPG,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_ppg(config: TrainConfig, **options: Any) -> TrainResult:
    """Train PPG; options as in `workflows.train`."""
    return train(config, **options)
