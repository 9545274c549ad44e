"""Reinforcement-learning training: readable algorithms on one shared loop, with exact resume."""

from rl_training._version import __version__ as __version__

# Nothing else is imported here: torch is slow and most of the command line does not need it, and the command line can
# handle Ctrl-C only after this package is loaded. `from __future__` would load a file, too.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rl_training.analysis.run_comparison import compare_runs as compare_runs
    from rl_training.analysis.run_diff import diff_runs as diff_runs
    from rl_training.analysis.run_plot import plot_runs as plot_runs
    from rl_training.api.algorithms import *
    from rl_training.api.algorithms import load as load
    from rl_training.checkup.env_check import check_env as check_env
    from rl_training.config.loading import load_config as load_config
    from rl_training.config.train_config import TrainConfig as TrainConfig
    from rl_training.errors import RLTrainingError as RLTrainingError
    from rl_training.experiment.manager import ExperimentManager as ExperimentManager
    from rl_training.runtime.callbacks.callback import Callback as Callback
    from rl_training.runtime.callbacks.callback import RunContext as RunContext
    from rl_training.runtime.callbacks.stop_rules import StopAtReturn as StopAtReturn
    from rl_training.runtime.callbacks.stop_rules import StopWithoutImprovement as StopWithoutImprovement
    from rl_training.runtime.callbacks.video_callback import RecordVideo as RecordVideo
    from rl_training.runtime.workflows import evaluate_checkpoint as evaluate_checkpoint
    from rl_training.runtime.workflows import resume as resume
    from rl_training.runtime.workflows import train as train
    from rl_training.telemetry.sinks import Sink as Sink

_HOMES = {
    "compare_runs": "rl_training.analysis.run_comparison",
    "Callback": "rl_training.runtime.callbacks.callback",
    "ExperimentManager": "rl_training.experiment.manager",
    "RLTrainingError": "rl_training.errors",
    "RecordVideo": "rl_training.runtime.callbacks.video_callback",
    "RunContext": "rl_training.runtime.callbacks.callback",
    "Sink": "rl_training.telemetry.sinks",
    "StopAtReturn": "rl_training.runtime.callbacks.stop_rules",
    "StopWithoutImprovement": "rl_training.runtime.callbacks.stop_rules",
    "TrainConfig": "rl_training.config.train_config",
    "diff_runs": "rl_training.analysis.run_diff",
    "check_env": "rl_training.checkup.env_check",
    "evaluate_checkpoint": "rl_training.runtime.workflows",
    "load": "rl_training.api.algorithms",
    "load_config": "rl_training.config.loading",
    "plot_runs": "rl_training.analysis.run_plot",
    "resume": "rl_training.runtime.workflows",
    "train": "rl_training.runtime.workflows",
}


def __getattr__(name: str) -> "Any":
    if name.startswith("__") and name != "__all__":  # the import system asks for such names, `__path__` for one
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from rl_training.config.algorithm_table import class_names

    if name == "__all__":
        return ["__version__", *_HOMES, *class_names()]
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in class_names():
        return getattr(import_module("rl_training.api.algorithms"), name)
    from rl_training.config.names_elsewhere import IMPORTS

    if name in IMPORTS:  # Python replaces the text of an AttributeError in `from rl_training import NAME`
        raise ImportError(f"rl_training has no {name}: {IMPORTS[name]} (docs/coming-from-sb3.md)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
