"""The managed API: a class per algorithm, and `load` for any saved agent."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rl_training.config.algorithm_table import class_names

if TYPE_CHECKING:
    from rl_training.api.algorithms import *
    from rl_training.api.algorithms import load as load
    from rl_training.api.managed import ManagedAlgorithm as ManagedAlgorithm

__all__ = ["ManagedAlgorithm", "load", *class_names()]


def __getattr__(name: str) -> Any:
    # On demand: importing torch is slow.
    if name in ("ManagedAlgorithm", "load") or name in class_names():
        return getattr(import_module("rl_training.api.algorithms"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *class_names()})
