"""What an actor of Ape-X does: makes vector steps, and says with its own networks how surprising they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.data.experience import Experience
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_factory import recent_steps
from rl_training.runtime.collection.collector import Collector, RolloutDropped
from rl_training.runtime.collection.steps import Episode, Step
from rl_training.runtime.fleet.gradient_maker import one_thread
from rl_training.runtime.fleet.tickets import Ticket


class ExperienceMaker:
    """Works off tickets of vector steps for the `num_envs` envs of one actor.

    It keeps the last steps in a small buffer, which sums n-step rewards as replay does. So the priority of a row is the
    error that the learner would find on the same rows with these networks. Of the last n - 1 rows of a ticket the
    windows are not whole yet: they get another priority with the next ticket.
    """

    def __init__(self, learner: Any, num_envs: int):
        self._learner, self._num_envs = learner, num_envs
        self._recent = self._nothing_yet()

    def _nothing_yet(self) -> ReplayBuffer:
        settings = self._learner.config
        steps = settings.ticket_steps + settings.n_step - 1
        return recent_steps(self._learner.spaces, settings, self._num_envs, steps)

    def collect(self, collector: Collector, ticket: Ticket) -> tuple[Experience, list[Episode]]:
        fresh = ticket.reset_at is not None
        if fresh:
            self._recent = self._nothing_yet()
        before = min(self._recent.rows_written, self._learner.config.n_step - 1)
        steps: list[Step] = []
        for _ in range(ticket.num_steps):
            if collector.overdue():
                raise RolloutDropped
            steps.append(collector.step(random=ticket.random, repeat=ticket.repeat))
        names = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "valid")
        columns = {name: np.stack([getattr(step, name) for step in steps]) for name in names}
        nobody = np.zeros(self._num_envs, bool)
        broken = np.stack([nobody if step.broken is None else step.broken for step in steps])
        priorities = self._priorities(columns, broken, before) if self._learner.config.prioritized else None
        episodes = [episode for step in steps for episode in step.episodes]
        return Experience(**columns, broken=broken, fresh=fresh, priorities=priorities), episodes

    def _priorities(self, columns: dict[str, np.ndarray], broken: np.ndarray, before: int) -> np.ndarray:
        """Of the new rows [T, N] and of the `before` rows ahead of them; 0 for rows that are no transitions."""
        add_steps(self._recent, columns, self._learner.shape_rewards(columns["rewards"]), broken)
        rows = self._recent.newest_rows(before + len(broken))
        valid = self._recent.is_valid(rows)
        priorities = np.zeros(rows.shape, np.float32)
        if valid.any():
            with one_thread():
                priorities[valid] = self._learner.priorities(self._recent.rows(rows[valid])).numpy()
        return priorities


def add_steps(buffer: ReplayBuffer, columns: dict[str, np.ndarray], rewards: np.ndarray, broken: np.ndarray) -> None:
    """Store vector steps [T, N, ...] with shaped rewards. An episode whose env broke ends with the row before."""
    for t in range(len(rewards)):
        if broken[t].any():
            buffer.cut(broken[t])
        buffer.add(
            columns["obs"][t],
            columns["actions"][t],
            rewards[t],
            columns["next_obs"][t],
            columns["terminated"][t],
            columns["truncated"][t],
            columns["valid"][t],
        )
