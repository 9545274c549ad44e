"""Algorithms outside the core, each under its own name: none is a mode of a core algorithm."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.contrib.api import RecurrentPPO

__all__ = ["RecurrentPPO"]


def __getattr__(name: str) -> Any:
    # On demand: torch takes long to import.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
