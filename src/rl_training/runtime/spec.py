"""An algorithm's row of the table, together with its classes and hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_training.algorithms.common.learner import Learner
from rl_training.config.algorithm_table import SPACE_NAMES, ActionKind, get_algorithm, resolve, usable_algorithms
from rl_training.config.base import AlgorithmConfig
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.runtime.agent import Agent
from rl_training.runtime.evaluation import EvalResult
from rl_training.runtime.loops import Loop, OnPolicyLoop, ReplayLoop
from rl_training.runtime.rollout_replay_loop import RolloutReplayLoop
from rl_training.storage.checkpoints import Checkpoint

LOOPS: dict[str, type[Loop]] = {
    "on-policy": OnPolicyLoop,
    "replay": ReplayLoop,
    "on-policy, replay": RolloutReplayLoop,
}


@dataclass(frozen=True)
class AlgorithmSpec:
    """Name, classes and hooks of one algorithm."""

    name: str
    title: str
    paper: str
    config: type[AlgorithmConfig]
    learner: type[Learner]
    loop: type[Loop]
    actions: tuple[ActionKind, ...]
    load: Callable[[Checkpoint], Agent] = Agent.load
    evaluate: Callable[..., EvalResult] = Agent.evaluate
    predict: Callable[..., tuple[Any, Any]] = Agent.predict

    def check_spaces(self, spaces: Spaces, env_id: str) -> None:
        """Refuse an environment whose spaces this algorithm cannot handle, and name the way out."""
        if (env_id.startswith("ALE/") or "NoFrameskip-v" in env_id) and spaces.observation_shape[-1:] == (3,):
            raise EnvError(
                f"{env_id} has raw Atari frames {spaces.observation_shape}, which are not supported: "
                f"set env_kwargs.atari=true, or env_kwargs.image"
            )
        kind = spaces.action_kind
        if kind in self.actions:
            self._check_bounds(spaces, env_id)
            return
        others = _takers(kind)
        accepted = " and ".join(SPACE_NAMES[action] for action in self.actions)
        raise EnvError(
            f"{self.name} takes {accepted} actions, but {env_id} has {SPACE_NAMES[kind]}: "
            f"use {', '.join(others) or 'another env'}"
        )

    def _check_bounds(self, spaces: Spaces, env_id: str) -> None:
        """Refuse unbounded actions if the policy stays in [-1, 1], as those of replay algorithms do.

        On-policy algorithms have Gaussian policies without bounds.
        """
        if not spaces.unbounded_actions or not issubclass(self.loop, ReplayLoop):
            return
        first, *others = spaces.unbounded_actions
        more = f" and {len(others)} more" if others else ""
        raise EnvError(
            f"{env_id} does not bound {first}{more}, and {self.name} acts within bounds: "
            f"set action_bound, for example action_bound=2.0, or wrap the env with gymnasium.wrappers.TransformAction"
        )


def _takers(kind: ActionKind) -> list[str]:
    """The algorithms that take actions of this kind."""
    return [row.name for row in usable_algorithms()[0] if kind in row.actions]


def get_spec(name: str) -> AlgorithmSpec:
    """The spec of an algorithm; its classes are imported here."""
    row = get_algorithm(name)
    return AlgorithmSpec(
        name=row.name,
        title=row.title,
        paper=row.paper,
        config=resolve(row.config),
        learner=resolve(row.learner),
        loop=LOOPS[row.loop],
        actions=row.actions,
    )
