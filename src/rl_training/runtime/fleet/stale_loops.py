"""Loops whose actors collect while the learner learns: `pipelined` with a lag of one update, `async` with any.

Only algorithms that correct for stale rollouts use the first two: V-trace weighs each step by the log-probability with
which it was chosen, and that is stored with the step. The other two are those of A3C, whose actors push gradients.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rl_training.algorithms.common.learner import UpdateResult
from rl_training.data.gradient_push import Push
from rl_training.data.rollout import Rollout
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.delivery import Delivery
from rl_training.runtime.loops import OnPolicyLoop, Progress

WORTH_ADVICE, ADVICE_BATCHES = 0.01, 50  # the share of stale steps, and the batches after which it means something


class PipelinedLoop(OnPolicyLoop):
    """While the learner learns from a rollout, the actors collect the next one with the weights of before.

    So every rollout is one update old, except the first after a start or a checkpoint, which is fresh. The lag depends
    on no timing: a run is the same on every backend. Before a checkpoint nothing is collected ahead.
    """

    collector: ActorCollector

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._ahead = 0  # steps of the tickets that are granted for the next round; 0: none are
        self.collector.keeps_rounds = True

    def round(self) -> Progress | None:
        num_steps = self._ahead or self._next_num_steps(self.env_steps)
        if num_steps == 0:
            return None
        if not self._ahead:
            self.collector.grant_all(num_steps, self.env_steps)
        self._let_actors_go_on(num_steps)
        return self.use(*self.collector.learned_rollout(self.collector.take_round()))

    def _let_actors_go_on(self, num_steps: int) -> None:
        """Wait for all rollouts of this round, and grant the ticket of the next one to each actor that has delivered.

        To wait for the slowest before that would gain nothing: until the update, the weights are the same. An actor
        only has to wait if the length of its rollout depends on how many rows of the others are env steps.
        """
        crew, waiting = self.collector, set(range(self.collector.actors))
        after = self.env_steps + num_steps * crew.num_envs
        self._ahead = 0
        crew.begin_round()
        while True:
            made = sum(delivery.env_steps for delivery in crew.arrived)
            missing = num_steps * (crew.num_envs // crew.actors) * (crew.actors - len(crew.arrived))
            ahead = self._steps_ahead(self.env_steps + made + missing)
            if ahead and ahead == self._steps_ahead(self.env_steps + made):
                self._ahead = ahead
                for actor in [actor for actor in waiting if crew.has_arrived(actor)]:
                    crew.grant(actor, ahead, after)
                    waiting.remove(actor)
            if not missing:
                return
            crew.wait()

    def _steps_ahead(self, env_steps: int) -> int:
        """Steps of the next round if this one ends at `env_steps`; 0 if a scheduled checkpoint comes before it."""
        every = int(self.config.checkpoint_every)
        if every and env_steps // every > self.env_steps // every:
            return 0
        return self._next_num_steps(env_steps)

    def barrier(self) -> None:
        """Take back what is collected ahead: then this save is off schedule, and the run ends."""
        self.collector.abandon()
        self._ahead = 0


class AsyncLoop(OnPolicyLoop):
    """Each actor gets its next ticket as soon as it has delivered; the learner takes rollouts in order of arrival.

    An update uses as many rollouts as there are actors, so it has the usual number of rows; a fast actor may have
    brought two of them. No ticket is granted while two batches wait. A rollout older than `runtime.max_lag` updates is
    not learned: it counts as stale. The order depends on timing, so such a run cannot be repeated bit for bit.
    """

    collector: ActorCollector
    is_exact: ClassVar[bool] = False

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._left, self._steps = 0, 0  # tickets of the current set that are not granted, and their steps
        self._batch: list[Delivery] = []
        self._told = False  # that many rollouts are stale

    def round(self) -> Progress | None:
        crew = self.collector
        self._grant()
        while (batch := self._batch_of_arrived()) is None:
            if not crew.ledger.in_flight:
                return None
            crew.wait()
            self._grant()
        self._batch = batch
        rollout, episodes = crew.learned_rollout(batch)
        self._advise()
        return self.use(rollout, episodes, made=sum(delivery.env_steps for delivery in batch))

    def _advise(self) -> None:
        """Tell once if so many steps are stale that the run should be set up differently."""
        ledger = self.collector.ledger
        made = ledger.learned + ledger.stale
        if self._told or made < ADVICE_BATCHES * self.num_steps * self.collector.num_envs:
            return
        if ledger.stale > WORTH_ADVICE * made:
            self._told = True
            self.collector.notes.append(
                f"{ledger.stale / made:.0%} of the steps were older than runtime.max_lag={self.collector.max_lag} "
                "updates and not learned: use a smaller num_steps, fewer updates per rollout, or a larger max_lag"
            )

    def _grant(self) -> None:
        """A ticket for every actor without one, while the budget lasts and fewer than two batches wait.

        Tickets come in sets of one batch, all of the same length: so no rollout is left over at the end.
        """
        crew = self.collector
        for actor in range(crew.actors):
            if crew.ledger.out_with(actor) is not None:
                continue
            if len(crew.arrived) + crew.ledger.tickets_out >= 2 * crew.actors:
                return
            if not self._left:
                self._steps = self._next_num_steps(self.env_steps + crew.ledger.in_flight)
                self._left = crew.actors if self._steps else 0
            if not self._left:
                return
            self._left -= 1
            crew.grant(actor, self._steps, self.env_steps)

    def _batch_of_arrived(self) -> list[Delivery] | None:
        """The first rollouts of equal length that make a batch, taken from those that wait; None if too few do."""
        arrived, size = self.collector.arrived, self.collector.actors
        lengths = {delivery.number: len(delivery.content_as(Rollout).rewards) for delivery in arrived}
        for length in dict.fromkeys(lengths.values()):
            batch = [delivery for delivery in arrived if lengths[delivery.number] == length][:size]
            if len(batch) == size:
                for delivery in batch:
                    arrived.remove(delivery)
                return batch
        return None

    def normalized(self, rewards: np.ndarray, rollout: Rollout) -> np.ndarray:
        """By delivery: a batch may have two rollouts of the same envs, and those are in order."""
        normalizer, parts = self.learner.return_normalizer, []
        assert normalizer is not None
        size = self.collector.num_envs // self.collector.actors
        for place, delivery in enumerate(self._batch):
            columns = slice(place * size, (place + 1) * size)
            envs = slice(delivery.actor * size, (delivery.actor + 1) * size)
            starts, valid = rollout.episode_starts[:, columns], rollout.valid[:, columns]
            parts.append(normalizer(rewards[:, columns], starts, valid, envs))
        return np.concatenate(parts, 1)

    def barrier(self) -> None:
        """Take back what is not learned: a checkpoint is one cut of all that is."""
        self.collector.abandon()
        self._left = 0


class GradientLoop(OnPolicyLoop):
    """Lockstep of A3C: all actors compute gradients with the same weights, and the learner applies one after the other.

    So push k of a round is k updates old. The order is that of the actors, and a run is the same on every backend.
    """

    collector: ActorCollector

    def round(self) -> Progress | None:
        num_steps = self._next_num_steps(self.env_steps)
        if num_steps == 0:
            return None
        self.collector.grant_all(num_steps, self.env_steps, kind="gradient")
        deliveries = self.collector.take_round()
        results = [result for delivery in deliveries if (result := self.apply(delivery)) is not None]
        episodes = [episode for delivery in deliveries for episode in delivery.episodes]
        return Progress(self.env_steps, self.learner.updates, results, episodes)

    def apply(self, delivery: Delivery) -> UpdateResult | None:
        """Account for a push and step down its gradient. None if it is too old, or its rollout had no valid row."""
        push, is_fresh = delivery.content_as(Push), self.collector.settle(delivery)
        result = None
        if push.gradient is not None and is_fresh:
            self.shape_rewards(push.rewards)  # the actor has; this counts how many are clipped
            self.reward_max = max(self.reward_max, push.reward_max)
            # The clock still shows the steps before this push: the last update has a learning rate above 0.
            result = self.learn(push)
            if push.moments is not None:
                self.learner.observe_moments(push.moments)
        self.clock.env_steps += delivery.env_steps
        return result


class AsyncGradientLoop(GradientLoop):
    """A3C as in its paper: a gradient is applied when it arrives, and its actor goes on with the weights of then.

    With K actors, a push is about K - 1 updates old. One older than `runtime.max_lag` updates is stale and not applied.
    """

    is_exact: ClassVar[bool] = False

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._envs_per_actor = self.collector.num_envs // self.collector.actors

    @property
    def is_over(self) -> bool:
        return self._next_num_steps(self.env_steps, self._envs_per_actor) == 0

    def round(self) -> Progress | None:
        crew = self.collector
        for actor in range(crew.actors):
            # One whose push is not applied yet goes on after that, with newer weights.
            if crew.ledger.out_with(actor) is None and not crew.has_arrived(actor):
                ahead = self.env_steps + crew.ledger.in_flight
                if num_steps := self._next_num_steps(ahead, self._envs_per_actor):
                    crew.grant(actor, num_steps, self.env_steps, kind="gradient")
        if not crew.arrived:
            if not crew.ledger.tickets_out:
                return None
            crew.wait()
        delivery = crew.arrived.popleft()
        result = self.apply(delivery)
        return Progress(self.env_steps, self.learner.updates, [] if result is None else [result], delivery.episodes)

    def barrier(self) -> None:
        """Take back what is not applied: a checkpoint is one cut of all that is."""
        self.collector.abandon()
