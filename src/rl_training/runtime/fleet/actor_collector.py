"""The learner's side of the actors: grants tickets, waits with deadlines, replaces actors, and merges what arrives.

To a loop it is a collector: `collect` returns a rollout of all envs, `step` one vector step of all envs. Both are
lockstep: they publish the weights, grant a ticket to every actor and wait for all of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rl_training.algorithms.common.learner import Learner
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.failures import EnvFailed, EnvFailure
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.program import call
from rl_training.runtime.collection.collector import STEP_BY_STEP, RolloutDropped
from rl_training.runtime.collection.info_numbers import InfoNumbers
from rl_training.runtime.collection.steps import Episode, Step
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery, merged_rollout, merged_step
from rl_training.runtime.fleet.fleet_protocol import Fleet, FleetLost
from rl_training.runtime.fleet.tickets import Ledger, Ticket, UnknownTicket

RESTARTS_PER_ACTOR, WITHIN_SECONDS = 3, 600.0
RESTARTS_PER_RUN = 20
LONGEST_POLL = 0.2  # seconds: how often a wait looks whether the run has to stop


class ActorsLost(EnvError):
    """Actors end again and again."""


class ActorCollector:
    """Collects with the actors of a fleet. `failures` and `notes` tell what has happened to envs and actors."""

    def __init__(
        self,
        fleet: Fleet,
        spaces: Spaces,
        learner: Learner,
        config: TrainConfig,
        overdue: Callable[[], bool] = lambda: False,
    ):
        self.fleet, self.spaces, self.learner, self.overdue = fleet, spaces, learner, overdue
        self.num_envs, self.actors = config.num_envs, config.runtime.actors
        self.max_lag = config.runtime.max_lag  # updates by which what is learned may be old; None: nothing is too old
        self.info_numbers = ReportedNumbers(config.log_info)
        self.seconds_env = self.seconds_acting = 0.0  # of the mean actor
        self.seconds_waiting = self.seconds_actors_waited = 0.0  # of the learner, and of the mean actor
        # How rollouts are made, in words. A single actor may compile them, and says so with its first delivery.
        self.rollouts: str | None = None
        if self.actors > 1:
            self.rollouts = f"{STEP_BY_STEP}: {self.actors} actors share the envs"
        self.ledger = Ledger(self.num_envs // self.actors)
        self.failures: list[EnvFailure] = []
        self.notes: list[str] = []
        self.restarts = self._noted = 0
        self.arrived: deque[Delivery] = deque()  # in the order of arrival
        self.keeps_rounds = False  # a second delivery of an actor belongs to the next round and is kept apart
        self._early: list[Delivery] = []
        self._incarnations = [0] * self.actors
        self._replaced_at: list[list[float]] = [[] for _ in range(self.actors)]
        self._streams: list[Mapping[str, Any]] = [{} for _ in range(self.actors)]
        self._returns: list[Mapping[str, Any] | None] = [None] * self.actors  # statistics of returns that actors keep
        self._longest = [0] * self.actors
        self._lags: list[int] = []
        self._seen = [0] * self.actors  # the incarnation of the last delivery that was merged into a step
        self.reset(0)

    # What a loop asks of a collector.

    def reset(self, at_env_step: int) -> None:
        """Let every actor start new episodes with its next ticket."""
        self.reset_at = at_env_step
        self._fresh = [True] * self.actors

    def collect(self, num_steps: int) -> tuple[Rollout, list[Episode]]:
        """A rollout of `num_steps` steps of every env, and the episodes that ended in it."""
        self.grant_all(num_steps, self.learner.env_steps)
        return self.learned_rollout(self.take_round())

    def step(self, *, random: bool = False, repeat: int = 1) -> Step:
        """One vector step of every env."""
        self.grant_all(1, self.learner.env_steps, kind="step", random=random, repeat=repeat)
        return merged_step([self._step_of(delivery) for delivery in self.take_round()])

    @property
    def longest_running(self) -> int:
        return max(self._longest)

    def located(self, failure: EnvFailure) -> EnvFailure:
        return failure  # the actor knows

    @property
    def nursery_restarts(self) -> int:
        return len(self.fleet.notes)

    def shares(self, elapsed: float) -> dict[str, float]:
        """How much of the time the learner and the actors have waited, for the metric line."""
        return {"learner_waits": self.seconds_waiting / elapsed, "actors_wait": self.seconds_actors_waited / elapsed}

    def figures(self) -> dict[str, Any]:
        """The fleet's part of a metric line: how stale rollouts were since the last one, and the ledger."""
        line: dict[str, Any] = {"actors": self.actors, "actors_alive": self.fleet.alive(), "queue": len(self.arrived)}
        if self._lags:
            line |= {"lag_mean": sum(self._lags) / len(self._lags), "lag_max": max(self._lags)}
        self._lags = []
        return line | self.ledger.counts() | {"actor_restarts": self.restarts}

    # What a loop with stale rollouts asks for.

    def grant_all(self, num_steps: int, env_steps: int, **order: Any) -> None:
        for actor in range(self.actors):
            self.grant(actor, num_steps, env_steps, **order)

    def grant(self, actor: int, num_steps: int, env_steps: int, **order: Any) -> None:
        """Hand the weights of now and a ticket to an actor that has none."""
        self._hand_out(Ticket(0, actor, 0, 0, env_steps, num_steps, **order))

    def wait(self) -> None:
        """Wait until at least one delivery has arrived. RolloutDropped if the run must stop first."""
        assert self.ledger.tickets_out, "nothing is on its way"
        started, before = time.perf_counter(), len(self.arrived)
        while len(self.arrived) == before:
            if self.overdue():
                self.abandon()
                raise RolloutDropped
            self.receive(LONGEST_POLL)
        self.seconds_waiting += time.perf_counter() - started

    def receive(self, seconds: float) -> None:
        """Take what arrives within `seconds`; replace actors that are gone or late.

        If no actor will ever deliver again, the run stops here and can be resumed.
        """
        try:
            for event in self.fleet.poll(seconds):
                if isinstance(event, ActorFailure):
                    self._survive(event)
                elif self.keeps_rounds and self.has_arrived(event.actor):
                    self._early.append(event)
                else:
                    self._accept(event)
            self.notes += self.fleet.notes[self._noted :]
            self._noted = len(self.fleet.notes)
        except FleetLost as lost:
            self.notes.append(f"{lost}: the run is saved and stops; `{call('resume')}` continues it")
            self.abandon()
            raise RolloutDropped from None

    def take_round(self) -> list[Delivery]:
        """One delivery of each actor, in the order of the actors."""
        while len(self.arrived) < self.actors:
            self.wait()
        deliveries = sorted(self.arrived, key=lambda delivery: delivery.actor)
        self.arrived.clear()
        return deliveries

    def begin_round(self) -> None:
        """Take what actors that are ahead have delivered for this round. Before, it counts nowhere.

        So accounts and metrics depend on the round and not on who was faster.
        """
        early, self._early = self._early, []
        for delivery in early:
            self._accept(delivery)

    def has_arrived(self, actor: int) -> bool:
        """Whether a delivery of this actor waits to be learned."""
        return any(delivery.actor == actor for delivery in self.arrived)

    def learned_rollout(self, deliveries: Sequence[Delivery]) -> tuple[Rollout, list[Episode]]:
        """The rollouts of these deliveries side by side, to be learned now, and their episodes.

        Of one that is too old, no row is valid.
        """
        rollouts = []
        for delivery in deliveries:
            rollout = delivery.content_as(Rollout)
            is_fresh = self.settle(delivery)
            rollouts.append(rollout if is_fresh else replace(rollout, valid=np.zeros_like(rollout.valid)))
        episodes = [episode for delivery in deliveries for episode in delivery.episodes]
        return merged_rollout(rollouts), episodes

    def lag(self, delivery: Delivery) -> int:
        """Updates between the weights that acted and those that learn."""
        return self.learner.updates - delivery.version

    def settle(self, delivery: Delivery) -> bool:
        """Account for a delivery that is to be learned now. False if it is too old for that."""
        lag = self.lag(delivery)
        is_fresh = self.max_lag is None or lag <= self.max_lag
        self._lags.append(lag)
        self.ledger.learn(delivery.number, stale=not is_fresh)
        return is_fresh

    def abandon(self) -> None:
        """Take back everything that is not learned. Actors finish what they do, and nobody listens."""
        self.arrived.clear()
        self._early.clear()
        self.ledger.abandon()

    # State: what the actors have drawn and counted. With one actor these are parts of the learner, which saves them.

    def state_dict(self) -> dict[str, Any]:
        known = () if self.actors == 1 else self._streams
        streams = {str(actor): dict(state) for actor, state in enumerate(known)}
        returns = {str(actor): dict(state) for actor, state in enumerate(self._returns) if state is not None}
        return {
            "actors": self.actors,
            "streams": streams,
            "ledger": self.ledger.state_dict(),
            "restarts": self.restarts,
            "incarnations": list(self._incarnations),
        } | ({"returns": returns} if returns else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if int(state["actors"]) != self.actors:
            raise ValueError(f"the checkpoint has {state['actors']} actors, the config {self.actors}")
        if self.actors > 1:
            self._streams = [state["streams"][str(actor)] for actor in range(self.actors)]
            self._returns = [state.get("returns", {}).get(str(actor)) for actor in range(self.actors)]
        self.ledger.load_state_dict(state["ledger"])
        self.restarts = int(state["restarts"])
        self._incarnations = list(state.get("incarnations", self._incarnations))  # older checkpoints have none

    def _streams_of(self, actor: int) -> Mapping[str, Any]:
        if self.actors == 1:
            states: Mapping[str, Any] = self.learner.streams.state_dict()["generators"]
            return states
        return self._streams[actor]

    def _returns_of(self, actor: int) -> Mapping[str, Any] | None:
        if self.actors > 1:
            return self._returns[actor]
        normalizer = self.learner.return_normalizer
        return None if normalizer is None else normalizer.state_dict()

    def _hand_out(self, ticket: Ticket) -> None:
        """Grant a ticket with the weights of now. An actor that starts new episodes also gets what they begin with."""
        actor = ticket.actor
        ticket = replace(ticket, incarnation=self._incarnations[actor], version=self.learner.updates)
        if self._fresh[actor]:
            self._fresh[actor] = False
            returns = self._returns_of(actor) if ticket.kind == "gradient" else None
            ticket = replace(ticket, reset_at=self.reset_at, streams=self._streams_of(actor), returns=returns)
        self.fleet.publish(self.learner.acting_state())
        self.fleet.grant(self.ledger.grant(ticket))

    def _accept(self, delivery: Delivery) -> None:
        """Take a delivery whose ticket is out. One of a replaced actor, or of an abandoned ticket, counts nowhere."""
        try:
            self.ledger.arrive(delivery.number, delivery.actor, delivery.incarnation, delivery.env_steps)
        except UnknownTicket:
            return
        actor = delivery.actor
        if self.actors == 1:
            self.rollouts = delivery.rollouts
            for name, state in delivery.streams.items():
                self.learner.streams[name].bit_generator.state = state
            if delivery.noise is not None:
                self.learner.noise.load_state_dict(delivery.noise)  # type: ignore[attr-defined]
            if delivery.returns is not None:
                assert self.learner.return_normalizer is not None
                self.learner.return_normalizer.load_state_dict(delivery.returns)
        else:
            self._streams[actor] = {**self._streams[actor], **delivery.streams}
            self._returns[actor] = delivery.returns
        self.failures += delivery.failures
        self.notes += delivery.notes
        for problem in delivery.problems:
            self.info_numbers.tell(problem)
        self._longest[actor] = delivery.longest_running
        self.seconds_env += delivery.seconds_env / self.actors
        self.seconds_acting += delivery.seconds_acting / self.actors
        self.seconds_actors_waited += delivery.seconds_waiting / self.actors
        self.arrived.append(delivery)

    def _step_of(self, delivery: Delivery) -> Step:
        """The step of a delivery. After a replacement the envs of the actor are new: no n-step window may cross it."""
        step = delivery.content_as(Step)
        self.settle(delivery)
        if delivery.incarnation != self._seen[delivery.actor]:
            self._seen[delivery.actor] = delivery.incarnation
            step.broken = np.ones(len(step.valid), bool)
        return step

    def _survive(self, down: ActorFailure) -> None:
        """Replace an actor, within limits, and grant its ticket again. Its unfinished steps are lost."""
        if down.error is not None:
            raise down.error
        actor = down.actor
        now = time.monotonic()
        recent = sum(now - then < WITHIN_SECONDS for then in self._replaced_at[actor])
        if not down.blameless and (recent >= RESTARTS_PER_ACTOR or self.restarts >= RESTARTS_PER_RUN):
            limit = f"the run has reached its limit of {RESTARTS_PER_RUN} actor replacements"
            if recent >= RESTARTS_PER_ACTOR:
                limit = f"it was already replaced {recent} times within {WITHIN_SECONDS / 60:.0f} minutes, the limit"
            if down.failure is not None:
                raise EnvFailed(replace(down.failure, remark=f"; actor {actor} cannot go on: {limit}"))
            raise ActorsLost(f"actor {actor} failed: {down.reason}; {limit}: look for what ends it, then resume")
        if not down.blameless:
            self._replaced_at[actor].append(now)
            self.restarts += 1
        if down.failure is not None:
            self.failures.append(down.failure)
        self.notes.append(f"replaced actor {actor}: {down.reason}; its envs start new episodes")
        ticket = self.ledger.lose(actor)
        self._incarnations[actor] += 1
        self._fresh[actor] = True
        self.fleet.replace(actor)
        if ticket is not None:
            self._hand_out(ticket)


class ReportedNumbers(InfoNumbers):
    """The numbers of `log_info` when actors read them: what is wrong with them arrives with the deliveries."""

    def report_missing(self) -> None:
        """Nothing to add: each actor reports what its own episodes lack."""
