"""Reinforcement-learning training: readable algorithms on one shared loop, with exact resume."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rl_training._version import __version__
from rl_training.config.algorithm_table import class_names

if TYPE_CHECKING:
    from rl_training.api.algorithms import *
    from rl_training.api.algorithms import load as load
    from rl_training.config.loading import load_config as load_config
    from rl_training.config.train_config import TrainConfig as TrainConfig
    from rl_training.errors import RLTrainingError as RLTrainingError
    from rl_training.experiment.manager import ExperimentManager as ExperimentManager
    from rl_training.runtime.workflows import evaluate_checkpoint as evaluate_checkpoint
    from rl_training.runtime.workflows import resume as resume
    from rl_training.runtime.workflows import train as train

_HOMES = {
    "ExperimentManager": "rl_training.experiment.manager",
    "RLTrainingError": "rl_training.errors",
    "TrainConfig": "rl_training.config.train_config",
    "evaluate_checkpoint": "rl_training.runtime.workflows",
    "load": "rl_training.api.algorithms",
    "load_config": "rl_training.config.loading",
    "resume": "rl_training.runtime.workflows",
    "train": "rl_training.runtime.workflows",
}

__all__ = ["__version__", *_HOMES, *class_names()]


def __getattr__(name: str) -> Any:
    # On demand: importing torch is slow, and most of the command line does not need it.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in class_names():
        return getattr(import_module("rl_training.api.algorithms"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *class_names()})
