"""Environments: making them, and turning their spaces into what an agent sees."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.envs.factory import autoreset_mode, make_env, make_vector_env
    from rl_training.envs.spaces import Spaces

__all__ = ["Spaces", "autoreset_mode", "make_env", "make_vector_env"]


def __getattr__(name: str) -> Any:
    # On demand: gymnasium takes long to import, and a config error must be answered before it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'spaces' if name == 'Spaces' else 'factory'}"), name)
