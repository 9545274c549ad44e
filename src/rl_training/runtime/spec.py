"""The record that ties an algorithm's parts together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_training.algorithms.common.learner import Learner
from rl_training.config.base import AlgorithmConfig
from rl_training.envs.spaces import ActionKind, Spaces
from rl_training.errors import EnvError
from rl_training.experiment.registry import algorithm_names, get_spec
from rl_training.runtime.agent import Agent
from rl_training.runtime.loops import Loop

DISCRETE: tuple[ActionKind, ...] = ("discrete",)
CONTINUOUS: tuple[ActionKind, ...] = ("box",)
EVERY_ACTION: tuple[ActionKind, ...] = ("discrete", "multi_discrete", "multi_binary", "box")

SPACE_NAMES = {"discrete": "Discrete", "multi_discrete": "MultiDiscrete", "multi_binary": "MultiBinary", "box": "Box"}


@dataclass(frozen=True)
class AlgorithmSpec:
    """Name, parts and hooks of one algorithm; declared in `runtime/<name>_trainer.py`."""

    name: str
    title: str
    paper: str
    config: type[AlgorithmConfig]
    learner: type[Learner]
    loop: type[Loop]
    actions: tuple[ActionKind, ...]
    load: Any = field(default=Agent.load)
    evaluate: Any = field(default=Agent.evaluate)
    predict: Any = field(default=Agent.predict)

    def check_spaces(self, spaces: Spaces, env_id: str) -> None:
        """Refuse an env whose spaces this algorithm cannot take, and name the way out."""
        if len(spaces.observation_shape) > 1 and "discrete" not in self.actions:
            raise EnvError(
                f"{env_id} shows images {spaces.observation_shape}, and {self.name} takes vectors: "
                f"flatten them with gymnasium.wrappers.FlattenObservation"
            )
        if (env_id.startswith("ALE/") or "NoFrameskip-v" in env_id) and spaces.observation_shape[-1:] == (3,):
            raise EnvError(
                f"{env_id} shows raw frames {spaces.observation_shape}, which nobody learns from: "
                f"set env_kwargs.atari=true, or env_kwargs.image"
            )
        kind = spaces.action_kind
        if kind in self.actions:
            return
        others = [name for name in algorithm_names() if kind in get_spec(name).actions]
        takes = " and ".join(SPACE_NAMES[action] for action in self.actions)
        raise EnvError(
            f"{self.name} takes {takes} actions, but {env_id} has {SPACE_NAMES[kind]}: "
            f"use {', '.join(others) or 'another env'}"
        )
