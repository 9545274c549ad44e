"""Recurrent PPO entry point. The algorithm is contrib/recurrent_ppo.py; the loop is runtime/loops.py."""

from __future__ import annotations

from typing import Any

from rl_training.config.recurrent_ppo import RecurrentPPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.contrib.recurrent_ppo import RecurrentPPO
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.spec import EVERY_ACTION, AlgorithmSpec
from rl_training.runtime.workflows import TrainResult, train

RECURRENT_PPO_SPEC = AlgorithmSpec(
    name="recurrent_ppo",
    title="Proximal policy optimisation with memory",
    paper="arXiv:1707.06347",
    config=RecurrentPPOConfig,
    learner=RecurrentPPO,
    loop=OnPolicyLoop,
    actions=EVERY_ACTION,
)


def train_recurrent_ppo(config: TrainConfig, **options: Any) -> TrainResult:
    """Train recurrent PPO; options as in `workflows.train`."""
    return train(config, **options)
