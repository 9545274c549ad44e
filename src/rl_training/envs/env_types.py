"""Names for what the library accepts as an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

EnvMaker: TypeAlias = Callable[..., gym.Env[Any, Any]]
"""A callable that makes one env. It gets `env_kwargs` as keyword arguments."""

EnvSource: TypeAlias = str | EnvMaker | VectorEnv[Any, Any, Any]
"""An env id, a callable that makes one env, or a vector env that is already made."""

EnvTarget: TypeAlias = EnvSpec | EnvMaker
"""What makes one env: the registered spec of an id, or a callable."""

BackendName: TypeAlias = Literal["auto", "native", "batched", "sync", "async", "envpool"]
"""The words of the setting `vector_backend`."""
