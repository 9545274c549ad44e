"""The place of one actor whose answers have a deadline: what it has to answer, and until when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.envs.processes.async_vector import CONSTRUCTOR_PATIENCE
from rl_training.runtime.fleet.actor import compiles_rollouts
from rl_training.runtime.fleet.delivery import ActorFailure

SUSPENDED_SECONDS = 2.0  # a wait that takes this much longer than asked: this process itself was stopped meanwhile
COMPILE_SECONDS = 120.0  # to compile rollouts: several times as long as it takes, and no setting makes it shorter


@dataclass
class Post:
    """What an actor is expected to do. An answer that it owes stays due, whatever is ordered meanwhile."""

    works: list[Any] = field(default_factory=list)  # tickets that it has: several if one was abandoned
    deadline: float = float("inf")  # of its answer to the first of them
    has_envs: bool = False  # it has said that they are made
    compile_seconds: float = 0.0  # further time for its first delivery, before which it compiles

    def order(self, work: Any, timeout: float) -> None:
        """It is given a ticket. New time comes with it only if no earlier answer is due."""
        if not self.works:
            seconds = timeout if self.has_envs else timeout * (1 + CONSTRUCTOR_PATIENCE)
            self.deadline = time.monotonic() + seconds + self.compile_seconds
        self.works.append(work)

    def answered(self, timeout: float, work: Any = None) -> None:
        """It has answered, with its envs or to a ticket: the time for the next answer, if one is due, starts now."""
        if work is not None:
            self.works.remove(work)
            self.compile_seconds = 0.0
        self.has_envs = True
        self.deadline = time.monotonic() + timeout + self.compile_seconds if self.works else float("inf")

    def is_late(self) -> bool:
        return time.monotonic() >= self.deadline


def compile_seconds(config: TrainConfig) -> float:
    """How much longer the first delivery of each actor of a resolved config may take, because it compiles first."""
    return COMPILE_SECONDS if compiles_rollouts(config) and config.vector_backend == "batched" else 0.0


def give_back(posts: Sequence[Post], overslept: float) -> None:
    """After a wait that took `overslept` seconds too long: if this process was stopped, actors get that time."""
    if overslept > SUSPENDED_SECONDS:
        for post in posts:
            post.deadline += overslept


def silence(actor: int, timeout: float) -> ActorFailure:
    return ActorFailure(actor, f"it gave no answer within {timeout:g} s (runtime.actor_timeout) and was killed")
