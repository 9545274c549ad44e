"""Reinforcement-learning training: readable algorithms on one shared loop, with exact resume."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rl_training._version import __version__

if TYPE_CHECKING:
    from rl_training.api.algorithms import (
        A2C,
        APPO,
        C51,
        D4PG,
        DDPG,
        DQN,
        IMPALA,
        MPO,
        NAF,
        PPG,
        PPO,
        SAC,
        TD3,
        TRPO,
        RecurrentPPO,
        load,
    )
    from rl_training.config.loading import load_config
    from rl_training.config.train_config import TrainConfig
    from rl_training.errors import RLTrainingError
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.runtime.workflows import evaluate_checkpoint, resume, train

__all__ = [
    "A2C",
    "APPO",
    "C51",
    "D4PG",
    "DDPG",
    "DQN",
    "IMPALA",
    "MPO",
    "NAF",
    "PPG",
    "PPO",
    "SAC",
    "TD3",
    "TRPO",
    "ExperimentManager",
    "RLTrainingError",
    "RecurrentPPO",
    "TrainConfig",
    "__version__",
    "evaluate_checkpoint",
    "load",
    "load_config",
    "resume",
    "train",
]

_ELSEWHERE = {
    "ExperimentManager": "rl_training.experiment.manager",
    "RLTrainingError": "rl_training.errors",
    "TrainConfig": "rl_training.config.train_config",
    "evaluate_checkpoint": "rl_training.runtime.workflows",
    "load_config": "rl_training.config.loading",
    "resume": "rl_training.runtime.workflows",
    "train": "rl_training.runtime.workflows",
}


def __getattr__(name: str) -> Any:
    # On demand: torch takes long to import, and most of the command line does without it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "rl_training.api.algorithms")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
