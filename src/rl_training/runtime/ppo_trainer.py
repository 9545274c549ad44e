"""PPO entry point. The algorithm is algorithms/ppo.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.ppo import PPO
from rl_training.config.ppo import PPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

PPO_SPEC = AlgorithmSpec(
    name="ppo",
    title="Proximal policy optimisation",
    paper="arXiv:1707.06347",
    config=PPOConfig,
    learner=PPO,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_ppo(config: TrainConfig, **options: Any) -> TrainResult:
    """Train PPO; options as in `workflows.train`."""
    return train(config, **options)
