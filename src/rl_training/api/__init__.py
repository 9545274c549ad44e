"""The managed API: a class per algorithm, and `load` for whatever was saved."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from rl_training.api.managed import ManagedAlgorithm

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
    "ManagedAlgorithm",
    "RecurrentPPO",
    "load",
]


def __getattr__(name: str) -> Any:
    # On demand: torch takes long to import.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rl_training.api.algorithms"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
