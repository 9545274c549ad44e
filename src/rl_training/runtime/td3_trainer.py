"""TD3 entry point. The algorithm is algorithms/td3.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.td3 import TD3
from rl_training.config.td3 import TD3Config
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import ReplayLoop
from rl_training.runtime.spec import CONTINUOUS, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

TD3_SPEC = AlgorithmSpec(
    name="td3",
    title="Twin delayed DDPG",
    paper="arXiv:1802.09477",
    config=TD3Config,
    learner=TD3,
    loop=ReplayLoop,
    actions=CONTINUOUS,
)


def train_td3(config: TrainConfig, **options: Any) -> TrainResult:
    """Train TD3; options as in `workflows.train`."""
    return train(config, **options)
