"""The learners: one file per algorithm. What they share is in `common/`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rl_training.config.algorithm_table import class_names, get_algorithm, resolve

if TYPE_CHECKING:
    from rl_training.algorithms.common.learner import Learner as Learner
    from rl_training.algorithms.common.learner import UpdateResult as UpdateResult

__all__ = ["Learner", "UpdateResult", "get_learner", *class_names()]


def get_learner(name: str) -> type[Learner]:
    """The learner class of an algorithm; importing it imports torch."""
    learner: type[Learner] = resolve(get_algorithm(name).learner)
    return learner


def __getattr__(name: str) -> Any:
    # On demand: importing torch is slow.
    if name in ("Learner", "UpdateResult"):
        return getattr(import_module("rl_training.algorithms.common.learner"), name)
    if name in class_names():
        return get_learner(class_names()[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *class_names()})
