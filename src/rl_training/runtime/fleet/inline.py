"""The `inline` backend: actors that work one after the other in the learner's process. It is what others must equal."""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.runtime.fleet.actor import Actor
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.fleet_protocol import Greeting
from rl_training.runtime.fleet.tickets import Ticket


class InlineFleet:
    """A ticket is worked off in the `poll` that returns its delivery. What an actor raises is raised there."""

    def __init__(self, config: TrainConfig, env: EnvSource | None, overdue: Callable[[], bool] = lambda: False):
        self._config, self._env, self._overdue = config, env, overdue
        self._actors: list[Actor] = []
        self._tickets: deque[Ticket] = deque()
        self._published: Sequence[np.ndarray] = ()
        self.notes: list[str] = []

    def start(self) -> Greeting:
        for index in range(self._config.runtime.actors):
            self._actors.append(Actor(self._config, self._env, index, self._overdue))
        return self._actors[0].greeting

    def equip(self, config: TrainConfig, state: Sequence[np.ndarray]) -> None:
        for actor in self._actors:
            actor.equip(config)

    def publish(self, state: Sequence[np.ndarray]) -> None:
        self._published = state

    def grant(self, ticket: Ticket) -> None:
        self._actors[ticket.actor].adopt(self._published)  # a copy: the learner may move on before the ticket's turn
        self._tickets.append(ticket)

    def poll(self, seconds: float) -> list[Delivery | ActorFailure]:
        if not self._tickets:
            return []
        ticket = self._tickets.popleft()
        # A copy: the collector writes its next rollout into the same arrays.
        return [copy.deepcopy(self._actors[ticket.actor].collect(ticket))]

    def replace(self, actor: int) -> None:
        raise AssertionError("an actor in the learner's process cannot be replaced")

    def alive(self) -> int:
        return len(self._actors)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for actor in self._actors:
                stack.callback(actor.close)
