"""An actor: some of the envs of a run, and a copy of the learner that only acts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.algorithms.common.streams import Streams, derived_seed
from rl_training.config.algorithms.common.apex import uses_shards
from rl_training.config.base import RolloutConfig
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.envs.factory import backend_of
from rl_training.runtime.collection.collector import Collector, Share
from rl_training.runtime.fleet.delivery import Delivery
from rl_training.runtime.fleet.experience_maker import ExperienceMaker
from rl_training.runtime.fleet.fleet_protocol import Greeting
from rl_training.runtime.fleet.gradient_maker import GradientMaker
from rl_training.runtime.fleet.tickets import Ticket
from rl_training.runtime.setup.run_envs import spaces_of, training_envs
from rl_training.runtime.spec import get_spec


def compiles_rollouts(config: TrainConfig) -> bool:
    """Whether an actor compiles its rollouts if its envs can be compiled, as the loop without actors does."""
    settings = config.algo_kwargs
    if config.runtime.actors > 1 or not isinstance(settings, RolloutConfig):
        return False
    return config.compile == "on" and settings.why_not_compilable() is None


class Actor:
    """Actor `index` of a run. It is the same object in the learner's process, in its own, and on another machine."""

    def __init__(
        self, config: TrainConfig, env: EnvSource | None, index: int, overdue: Callable[[], bool] = lambda: False
    ):
        self.index, self._overdue = index, overdue
        self._num_envs = config.num_envs // config.runtime.actors
        self._stack = contextlib.ExitStack()
        mine = config.model_copy(update={"num_envs": self._num_envs})
        self._envs = self._stack.enter_context(training_envs(mine, env))
        self.greeting = Greeting(spaces_of(self._envs, config), backend_of(self._envs))
        self._collector: Collector | None = None

    def equip(self, config: TrainConfig) -> None:
        """Build the learner of the resolved config. It acts on the CPU, wherever the other one learns."""
        self._config = config = config.model_copy(update={"device": "cpu"})
        # One actor draws the numbers that the loop would draw. Several must not draw the same ones.
        alone = config.runtime.actors == 1
        self._streams = Streams(config.seed if alone else derived_seed(config.seed, "actor", self.index))
        self._learner = get_spec(config.algo).learner(self.greeting.spaces, config, self._streams)
        self._gradients = GradientMaker(self._learner, self._num_envs) if config.algo_kwargs.pushes_gradients else None
        self._learner.take_place(self.index)
        self._experience = ExperienceMaker(self._learner, self._num_envs) if uses_shards(config) else None
        self._unmoved = self._streams.state_dict()["generators"]
        self._reported = self._noted = 0

    def adopt(self, state: Sequence[np.ndarray]) -> None:
        self._learner.adopt(state)

    def collect(self, ticket: Ticket, seconds_waiting: float = 0.0) -> Delivery:
        """Do what the ticket says."""
        self._learner.clock.env_steps, self._learner.updates = ticket.env_steps, ticket.version
        for name, state in (ticket.streams or {}).items():
            self._streams[name].bit_generator.state = state
            self._unmoved[name] = state
        collector = self._at_start_of(ticket)
        before = collector.seconds_env, collector.seconds_acting
        content: Any
        if ticket.kind == "step":
            content = collector.step(random=ticket.random, repeat=ticket.repeat)
            episodes = content.episodes
        elif ticket.kind == "experience":
            assert self._experience is not None
            content, episodes = self._experience.collect(collector, ticket)
        else:
            content, episodes = collector.collect(ticket.num_steps)
        returns = None
        if ticket.kind == "gradient":
            assert self._gradients is not None
            content, returns = self._gradients.push(content, ticket.returns)
        failures = [collector.located(failure) for failure in collector.failures[self._reported :]]
        notes = collector.notes[self._noted :]
        self._reported, self._noted = self._reported + len(failures), self._noted + len(notes)
        noise: Any = getattr(self._learner, "noise", None)
        return Delivery(
            ticket.number,
            self.index,
            ticket.incarnation,
            ticket.version,
            content,
            episodes,
            streams=self._moved_streams(),
            noise=noise.state_dict() if hasattr(noise, "state_dict") else None,
            returns=returns,
            failures=failures,
            notes=notes,
            problems=collector.info_numbers.take_problems(),
            rollouts=collector.rollouts,
            longest_running=collector.longest_running,
            seconds_env=collector.seconds_env - before[0],
            seconds_acting=collector.seconds_acting - before[1],
            seconds_waiting=seconds_waiting,
        )

    def close(self) -> None:
        self._stack.close()

    def _at_start_of(self, ticket: Ticket) -> Collector:
        """The collector, with new episodes if the ticket asks for them."""
        if self._collector is None:  # only now: making it resets the envs, which needs weights of no use before
            config = self._config
            share = Share(self.index * self._num_envs, config.runtime.actors, config.seed)
            parts = (self._envs, self.greeting.spaces, self._learner, self._streams)
            self._collector = Collector(*parts, self._overdue, config.log_info, share)
            if compiles_rollouts(config):
                assert isinstance(config.algo_kwargs, RolloutConfig)
                self._collector.compile_rollouts(config.algo_kwargs.num_steps)
            if (ticket.reset_at, ticket.incarnation) == (0, 0):
                return self._collector  # the reset of the constructor is the one that is asked for
        if ticket.reset_at is not None:
            self._collector.reset(ticket.reset_at, ticket.incarnation)
        return self._collector

    def _moved_streams(self) -> Mapping[str, Any]:
        """Only what acting has moved: the learner's own streams are elsewhere by now."""
        now = self._streams.state_dict()["generators"]
        return {name: state for name, state in now.items() if state != self._unmoved.get(name)}
