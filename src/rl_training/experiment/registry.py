"""The registry: what the library knows about each algorithm, under one name.

The rows are in `config/algorithm_table.py`; `get_spec` gives an algorithm with its classes and its load, evaluate and
predict hooks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rl_training.algorithms import get_learner
from rl_training.config.algorithm_table import (
    ALGORITHMS,
    Algorithm,
    algorithm_names,
    get_algorithm,
    get_config_class,
    register,
)

if TYPE_CHECKING:
    from rl_training.runtime.spec import AlgorithmSpec

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "algorithm_names",
    "get_algorithm",
    "get_config_class",
    "get_learner",
    "get_spec",
    "register",
]


def get_spec(name: str) -> AlgorithmSpec:
    """The algorithm with its classes and hooks. This imports torch, so it happens on demand."""
    spec: AlgorithmSpec = import_module("rl_training.runtime.spec").get_spec(name)
    return spec
