"""The loops of Ape-X: actors fill a sharded replay, from which the learner samples at a kept ratio."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from rl_training.algorithms.common.learner import UpdateResult
from rl_training.data.experience import Experience
from rl_training.data.replay_factory import make_sharded_replay
from rl_training.data.sharded_replay import ShardedReplay
from rl_training.envs.spaces import Spaces
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.delivery import Delivery
from rl_training.runtime.fleet.experience_maker import add_steps
from rl_training.runtime.fleet.sample_ratio import SampleRatio
from rl_training.runtime.loops import Progress, ReplayLoop


class ApexLoop(ReplayLoop):
    """Lockstep: every actor makes `ticket_steps` steps of each of its envs, then the learner does the updates due.

    Steps are inserted in the order of the actors, so a run is the same on every backend and resumes exactly.
    """

    collector: ActorCollector
    buffer: ShardedReplay

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        apex: Any = self.settings  # an ApexConfig too, which mypy takes for impossible
        self.ticket_steps: int = apex.ticket_steps
        self.envs_per_actor = self.collector.num_envs // self.collector.actors
        slack = self.ticket_steps * self.collector.num_envs
        self.ratio = SampleRatio(ratio_of(apex), apex.batch_size, slack)

    def make_buffer(self, envs: Any, spaces: Spaces) -> ShardedReplay:
        assert isinstance(envs, ActorCollector)
        return make_sharded_replay(spaces, self.settings, envs.num_envs, envs.actors, self.config.env_kwargs)

    def round(self) -> Progress | None:
        if self.is_over:
            return None
        num_steps = min(self.ticket_steps, (self.config.total_timesteps - self.env_steps) // self.collector.num_envs)
        self.collector.grant_all(num_steps, self.env_steps, **self._order(self.env_steps))
        episodes = [episode for delivery in self.collector.take_round() for episode in self.insert(delivery)]
        results = [self._update() for _ in range(self.ratio.owed())]
        return Progress(self.env_steps, self.learner.updates, results, episodes)

    def _order(self, env_steps: int) -> dict[str, Any]:
        random = env_steps < self.settings.learning_starts
        return {"kind": "experience", "random": random, "repeat": self.settings.warm_up_repeat}

    def insert(self, delivery: Delivery) -> list[Episode]:
        """Take the steps of a delivery into the shard of its actor."""
        experience = delivery.content_as(Experience)
        self.collector.settle(delivery)
        shard = self.buffer.shards[delivery.actor]
        if experience.fresh:
            shard.cut()
        self.learner.observe(experience.obs, experience.valid)
        rewards = self.shape_rewards(experience.rewards)
        self.reward_max = max(self.reward_max, float(np.abs(rewards).max()))
        columns = {field.name: getattr(experience, field.name) for field in fields(experience)}
        add_steps(shard, columns, rewards, experience.broken)
        if experience.priorities is not None:
            count = min(len(experience.priorities), shard.slots)  # the oldest may be overwritten already
            priorities = experience.priorities[-count:].ravel()
            shard.update_priorities(shard.newest_rows(count).ravel(), priorities)
        self.clock.env_steps += delivery.env_steps
        self.ratio.inserts = max(0, self.env_steps - self.settings.learning_starts)
        return delivery.episodes

    def _update(self) -> UpdateResult:
        self.ratio.sampled()
        return super()._update()

    def figures(self) -> dict[str, Any]:
        line = super().figures()
        if self.ratio.inserts:
            line["samples_per_insert"] = self.ratio.samples / self.ratio.inserts
        return line

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"samples": self.ratio.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.ratio.inserts = max(0, self.env_steps - self.settings.learning_starts)
        self.ratio.samples = int(state["samples"])


class AsyncApexLoop(ApexLoop):
    """Actors go on as soon as they have delivered, and the learner samples meanwhile. Who is 10 % ahead has to wait.

    After the last step the learner does the updates that it is behind. The order depends on timing, so such a run
    cannot be repeated bit for bit.
    """

    is_exact: ClassVar[bool] = False

    @property
    def is_over(self) -> bool:
        left = self.config.total_timesteps - self.env_steps
        return left < self.envs_per_actor and not self.ratio.owed()

    def round(self) -> Progress | None:
        crew = self.collector
        self._grant()
        if not crew.ledger.tickets_out and not crew.arrived and self.is_over:
            return None
        if not crew.arrived:
            if not self.ratio.may_sample():
                crew.wait()
            elif crew.ledger.tickets_out:
                crew.receive(0.0)
        episodes: list[Episode] = []
        while crew.arrived:
            episodes += self.insert(crew.arrived.popleft())
        results = [self._update()] if self.ratio.may_sample() else []
        return Progress(self.env_steps, self.learner.updates, results, episodes)

    def _grant(self) -> None:
        """A ticket for every actor without one, while the budget lasts and the learner is not too far behind.

        The actor with the fewest rows is first: if tickets are scarce, the first one would get nearly all of them.
        """
        crew = self.collector
        idle = [actor for actor in range(crew.actors) if crew.ledger.out_with(actor) is None]
        for actor in sorted(idle, key=lambda actor: self.buffer.shards[actor].rows_written):
            ahead = self.env_steps + crew.ledger.in_flight
            num_steps = min(self.ticket_steps, (self.config.total_timesteps - ahead) // self.envs_per_actor)
            steps = num_steps * self.envs_per_actor
            if num_steps == 0 or not self.ratio.may_insert(crew.ledger.in_flight + steps):
                return
            crew.grant(actor, num_steps, self.env_steps, **self._order(ahead))

    def barrier(self) -> None:
        """Take back what is not inserted: a checkpoint is one cut of learner, shards and counters."""
        self.collector.abandon()
        super().barrier()


def ratio_of(settings: Any) -> float | None:
    """Samples per insert by the settings of an Ape-X algorithm; None if actors and learner run freely."""
    if settings.samples_per_insert == "auto":
        rounds = settings.train_frequency if settings.gradient_steps == -1 else settings.gradient_steps
        return float(settings.batch_size * rounds / settings.train_frequency)
    ratio: float | None = settings.samples_per_insert
    return ratio
