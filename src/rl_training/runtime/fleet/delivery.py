"""What an actor hands in for a ticket, what a failed actor leaves, and how the parts of several actors become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from rl_training.data.experience import Experience
from rl_training.data.gradient_push import Push
from rl_training.data.rollout import ROLLOUT_FIELDS, Rollout
from rl_training.envs.failures import EnvFailed, EnvFailure, trace_of
from rl_training.errors import RLTrainingError
from rl_training.runtime.collection.steps import Episode, Step

Content = TypeVar("Content", Rollout, Step, Push, Experience)


@dataclass(frozen=True)
class Delivery:
    """What an actor has made for a ticket, a rollout or whatever else it asks for, and the news that belong to it."""

    number: int  # of the ticket
    actor: int
    incarnation: int
    version: int
    content: Rollout | Step | Push | Experience
    episodes: list[Episode]
    streams: Mapping[str, Any]  # positions of the random streams that acting has moved, after the last step
    noise: Any = None  # the state of the exploration noise, if it has one
    returns: Any = None  # the state of the actor's statistics of returns, if it keeps any
    failures: list[EnvFailure] = field(default_factory=list)  # envs that were replaced meanwhile
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # of the numbers in `log_info`
    rollouts: str | None = None  # how the actor makes them, in words
    longest_running: int = 0
    seconds_env: float = 0.0
    seconds_acting: float = 0.0
    seconds_waiting: float = 0.0  # for the ticket

    @cached_property
    def env_steps(self) -> int:
        return int(np.count_nonzero(self.content.valid))

    def content_as(self, kind: type[Content]) -> Content:
        """The content, which is what the ticket has asked for."""
        assert isinstance(self.content, kind)
        return self.content


@dataclass(frozen=True)
class ActorFailure:
    """An actor that is gone or must go. `error` ends the run; otherwise the actor is replaced."""

    actor: int
    reason: str
    failure: EnvFailure | None = None  # of one of its envs, which ended the actor
    blameless: bool = False  # it ended with another process, and did nothing wrong
    error: Exception | None = None


def failure_of(actor: int, error: BaseException) -> ActorFailure:
    """What an exception inside an actor means: a failed env costs the actor, anything else ends the run."""
    if isinstance(error, EnvFailed):
        return ActorFailure(actor, f"its {error.failure}", failure=error.failure)
    if not isinstance(error, RLTrainingError):
        error = RuntimeError(f"actor {actor} raised an error:\n{trace_of(error)}")
    return ActorFailure(actor, str(error), error=error)


def merged_rollout(parts: Sequence[Rollout]) -> Rollout:
    """The envs of all parts side by side, in the order of the parts. All have the same number of steps."""
    if len(parts) == 1:
        return parts[0]
    first_envs = np.cumsum([0, *(part.rewards.shape[1] for part in parts[:-1])])
    columns = {name: np.concatenate([getattr(part, name) for part in parts], 1) for name in ROLLOUT_FIELDS}
    return Rollout(
        **columns,
        last_obs=np.concatenate([part.last_obs for part in parts]),
        final_steps=np.concatenate([part.final_steps for part in parts]),
        final_envs=np.concatenate([part.final_envs + first for part, first in zip(parts, first_envs, strict=True)]),
        final_obs=np.concatenate([part.final_obs for part in parts]),
        extras={name: np.concatenate([part.extras[name] for part in parts], 1) for name in parts[0].extras},
        initial_memory=_merged_memory([(part.initial_memory, part.rewards.shape[1]) for part in parts]),
    )


def _merged_memory(parts: Sequence[tuple[Any, int]]) -> Any:
    """Memories and envs of all parts. A part without one is at the start of its episodes: an empty memory."""
    known = [memory for memory, _ in parts if memory is not None]
    if not known:
        return None
    like = known[0]
    return np.concatenate(
        [np.zeros((envs, *like.shape[1:]), like.dtype) if memory is None else memory for memory, envs in parts]
    )


def merged_step(parts: Sequence[Step]) -> Step:
    """One vector step of the envs of all parts, in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    rows: dict[str, Any] = {}
    for each in fields(Step):
        values = [getattr(part, each.name) for part in parts]
        if isinstance(values[0], np.ndarray) and each.name not in ("broken", "memory"):
            rows[each.name] = np.concatenate(values)
    broken = None
    if any(part.broken is not None for part in parts):
        masks = [np.zeros(len(part.valid), bool) if part.broken is None else part.broken for part in parts]
        broken = np.concatenate(masks)
    extras = {name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras}
    episodes = [episode for part in parts for episode in part.episodes]
    memory = _merged_memory([(part.memory, len(part.valid)) for part in parts])
    return replace(parts[0], **rows, extras=extras, memory=memory, episodes=episodes, broken=broken)
