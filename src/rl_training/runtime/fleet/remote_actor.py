"""An actor on another machine: what it needs to know that a process there does not, and answers in place of errors."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from threadpoolctl import threadpool_limits

from rl_training.config.own_classes import allow, given_class, hand_over
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.envs.processes.async_worker import refusal
from rl_training.envs.processes.process_tree import on_parents_death
from rl_training.errors import raise_interrupts
from rl_training.runtime.fleet.actor import Actor
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery, failure_of
from rl_training.runtime.fleet.fleet_protocol import Greeting
from rl_training.runtime.fleet.tickets import Ticket


@dataclass(frozen=True)
class Luggage:
    """What a process of another machine does not know: envs that the program has registered, and its own encoder."""

    specs: dict[str, Any]
    encoder: type[Any] | None

    @classmethod
    def of(cls, config: TrainConfig) -> Luggage:
        spec = gym.registry.get(config.env_id)
        return cls({} if spec is None else {config.env_id: spec}, given_class(str(config.model.encoder)))

    def unpack(self, config: TrainConfig) -> None:
        for name, spec in self.specs.items():
            gym.registry.setdefault(name, spec)
        if self.encoder is not None:
            hand_over(str(config.model.encoder), self.encoder)
        elif config.model.has_own_encoder:
            allow(str(config.model.encoder))


class RemoteActor:
    """An actor whose errors are answers: what carries its answers would wrap errors that are raised."""

    def __init__(self, config: TrainConfig, env: EnvSource | None, index: int, luggage: Luggage):
        import torch

        on_parents_death(signal.SIGKILL)  # what started this process may end without ending it
        torch.set_num_threads(1)
        threadpool_limits(1, "blas")
        luggage.unpack(config)
        self._parts = config, env, index
        self._actor: Actor | None = None
        self._config: TrainConfig | None = None
        self._idle_since = time.perf_counter()

    def make_envs(self) -> Greeting | bytes:
        """Make the envs. The answer says what they are, or why they could not be made."""
        try:
            self._actor = actor = Actor(*self._parts)
        except BaseException as error:
            raise_interrupts(error)
            return refusal(error)
        return actor.greeting

    def equip(self, config: TrainConfig) -> None:
        self._config = config

    def collect(self, ticket: Ticket, weights: Sequence[np.ndarray]) -> Delivery | ActorFailure | None:
        if self._actor is None:
            return None  # `make` has said why
        waited = time.perf_counter() - self._idle_since
        try:
            if self._config is not None:
                self._actor.equip(self._config)
                self._config = None
            self._actor.adopt(weights)
            return self._actor.collect(ticket, waited)
        except BaseException as error:
            raise_interrupts(error)
            return failure_of(self._actor.index, error)
        finally:
            self._idle_since = time.perf_counter()

    def close(self) -> None:
        if self._actor is not None:
            self._actor.close()
