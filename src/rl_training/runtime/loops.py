"""The two training loops. Each is an iterator that yields `Progress` after every round.

Logging, evaluation, checkpoints and stopping are the body of one `for` statement that uses the loop. All state is in
attributes, so a loop can be saved like any other object.

A loop owns what happens between environment and learner: it shapes rewards, shows observations to the learner's
statistics, and advances the clock that both share.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.streams import Streams, check_positions
from rl_training.config.base import ReplayConfig, RolloutConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.goal_replay import Hindsight
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_factory import make_replay
from rl_training.data.replay_memory import check_rollout_fits
from rl_training.data.rollout import Rollout
from rl_training.data.sharded_replay import ShardedReplay
from rl_training.data.trajectory_replay import MEMORY, TrajectoryReplay
from rl_training.envs.goals import GoalColumns, goal_rules
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.runtime.collection.collector import Collector, RolloutDropped
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.divergence import check_update
from rl_training.runtime.fleet.actor_collector import ActorCollector


@dataclass(slots=True)
class Progress:
    """The position of a run after a round, and the results of the round."""

    env_steps: int
    updates: int
    results: list[UpdateResult]
    episodes: list[Episode]


class Loop(ABC):
    """Collect, learn, yield, until `total_timesteps` env steps are done."""

    is_exact: ClassVar[bool] = True  # whether a run that is resumed from a scheduled checkpoint continues bit for bit
    remainder: ClassVar[str]  # what the steps are that the budget has left after the last round
    buffer: ReplayBuffer | ShardedReplay | None = None  # what the loop learns from later, saved in segments

    def __init__(
        self,
        envs: VectorEnv | ActorCollector,
        spaces: Spaces,
        learner: Learner,
        config: TrainConfig,
        streams: Streams,
        overdue: Callable[[], bool] = lambda: False,
    ):
        self.learner, self.config, self.streams = learner, config, streams
        self.collector: Collector | ActorCollector
        if isinstance(envs, ActorCollector):
            self.collector = envs
        else:
            self.collector = Collector(envs, spaces, learner, streams, overdue, config.log_info)
        self.clock = learner.clock
        self.dropped = False
        self.choices: Mapping[str, str] = {}  # why `auto` settings have their values, in words
        self.seconds_learning = 0.0
        self.reward_max, self.longest_episode = 0.0, 0  # so far: of shaped rewards, and of finished episodes
        self._rewards_seen, self._rewards_clipped = 0, 0  # since the last call of `figures`

    @property
    def env_steps(self) -> int:
        return self.clock.env_steps

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether no further round fits into the budget."""

    @abstractmethod
    def round(self) -> Progress | None:
        """Do one round, or return None when the budget is used up."""

    def __iter__(self) -> Iterator[Progress]:
        try:
            while (progress := self.round()) is not None:
                for episode in progress.episodes:
                    self.longest_episode = max(self.longest_episode, episode.length)
                yield progress
        except RolloutDropped:  # the state is as it was before the round
            self.dropped = True

    @abstractmethod
    def barrier(self) -> None:
        """Cut every episode here, so that the rest of the run depends only on the saved state.

        In general, the state of an env cannot be saved. A checkpoint therefore cuts all episodes, both in the run that
        continues and in a run that is resumed from it, and both start new episodes from the same derived seeds.
        """

    def restart_envs(self) -> None:
        self.collector.reset(self.env_steps)

    def learn(self, batch: Any) -> UpdateResult:
        started = time.perf_counter()
        result = self.learner.update(batch)
        check_update(result, batch, self.learner)
        self.seconds_learning += time.perf_counter() - started
        return result

    def figures(self) -> dict[str, Any]:
        """What the loop adds to a metric line: how large rewards and how long episodes have been."""
        line: dict[str, Any] = {"reward_max": self.reward_max}
        self.longest_episode = max(self.longest_episode, self.collector.longest_running)
        line["longest_episode"] = self.longest_episode
        if self._rewards_seen:
            line["reward_clipped"] = self._rewards_clipped / self._rewards_seen
        self._rewards_seen, self._rewards_clipped = 0, 0
        if isinstance(self.collector, ActorCollector):
            line |= self.collector.figures()
        return line

    @property
    def facts(self) -> dict[str, Any]:
        """How the loop does its work, for run.json. They may change while it works."""
        return dict(self.choices)

    def shape_rewards(self, rewards: np.ndarray) -> np.ndarray:
        shaped = self.learner.shape_rewards(rewards)
        limit = self.learner.reward_clip
        if limit is not None:
            self._rewards_seen += rewards.size
            self._rewards_clipped += int(np.count_nonzero(np.abs(rewards * self.learner.reward_scale) > limit))
        return shaped

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "env_steps": self.env_steps,
            "reward_max": self.reward_max,
            "longest_episode": self.longest_episode,
        }
        if isinstance(self.collector, ActorCollector):
            state["fleet"] = self.collector.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.clock.env_steps = int(state["env_steps"])
        # Older checkpoints have neither.
        self.reward_max = float(state.get("reward_max", 0.0))
        self.longest_episode = int(state.get("longest_episode", 0))
        if isinstance(self.collector, ActorCollector) and "fleet" in state:  # one actor continues a run without any
            for positions in state["fleet"]["streams"].values():
                check_positions(positions)  # here: what fails in an actor is no fault of the checkpoint
            self.collector.load_state_dict(state["fleet"])


class OnPolicyLoop(Loop):
    """Each round collects a rollout and updates on it once.

    The budget is never exceeded: the last rollout is shortened to fit. A remainder of less than a quarter of a rollout
    is not used, because an update on a few steps does more harm than good.
    """

    remainder = "less than a quarter of a rollout (num_steps * num_envs), too few for an update"

    def __init__(
        self, envs: VectorEnv | ActorCollector, spaces: Spaces, learner: Learner, config: TrainConfig, *parts: Any
    ):
        super().__init__(envs, spaces, learner, config, *parts)
        assert isinstance(config.algo_kwargs, RolloutConfig)
        self.num_steps = config.algo_kwargs.num_steps
        kept = getattr(config.algo_kwargs, "policy_phases", 1)  # rollouts in memory at once
        rows = min(self.num_steps * envs.num_envs * kept, config.total_timesteps)
        check_rollout_fits(rows * spaces.row_bytes, rows)
        if isinstance(self.collector, Collector):
            self.collector.compile_rollouts(self.num_steps)

    @property
    def facts(self) -> dict[str, Any]:
        """With `compile`: whether rollouts are a compiled function too, or why not, once that is known."""
        rollouts, facts = self.collector.rollouts, super().facts
        return {**facts, "rollouts": rollouts} if self.learner.compiles and rollouts is not None else facts

    def _next_num_steps(self, env_steps: int, num_envs: int | None = None) -> int:
        """Steps per env of the rollout after `env_steps` env steps, of `num_envs` or all envs; 0 if none are left."""
        remaining = (self.config.total_timesteps - env_steps) // (num_envs or self.collector.num_envs)
        num_steps = min(self.num_steps, remaining)
        return 0 if num_steps < max(1, self.num_steps / 4) and (env_steps > 0 or num_steps == 0) else num_steps

    @property
    def is_over(self) -> bool:
        return self._next_num_steps(self.env_steps) == 0

    def round(self) -> Progress | None:
        num_steps = self._next_num_steps(self.env_steps)
        if num_steps == 0:
            return None
        return self.use(*self.collector.collect(num_steps))

    def use(self, rollout: Rollout, episodes: list[Episode], made: int | None = None) -> Progress:
        """Learn from a rollout. `made` are its env steps if some of them are not to be learned."""
        made = int(np.count_nonzero(rollout.valid)) if made is None else made
        if not rollout.valid.any():  # under next-step autoreset, a rollout of a step or two may contain only resets
            self.clock.env_steps += made
            return Progress(self.env_steps, self.learner.updates, [], episodes)
        # The clock still shows the steps before this rollout: the last update has a learning rate above 0.
        results = self.learn_from(replace(rollout, rewards=self._shaped_rewards(rollout)))
        # Only now: for the update, the policy must be the function that acted.
        self.learner.observe(rollout.obs, rollout.valid)
        self.clock.env_steps += made
        return Progress(self.env_steps, self.learner.updates, results, episodes)

    def learn_from(self, rollout: Rollout) -> list[UpdateResult]:
        """The updates that a rollout with shaped rewards makes due."""
        return [self.learn(rollout)]

    def _shaped_rewards(self, rollout: Rollout) -> np.ndarray:
        """Scaled and clipped, then normalized if the config asks for it."""
        rewards = self.shape_rewards(rollout.rewards)
        if self.learner.return_normalizer is not None:
            rewards = self.normalized(rewards, rollout)
        self.reward_max = max(self.reward_max, float(np.abs(rewards).max()))
        return rewards

    def normalized(self, rewards: np.ndarray, rollout: Rollout) -> np.ndarray:
        assert self.learner.return_normalizer is not None
        return self.learner.return_normalizer(rewards, rollout.episode_starts, rollout.valid)

    def barrier(self) -> None:
        """Do nothing: every rollout bootstraps where it ends, so between rollouts there is nothing to cut."""


class ReplayLoop(Loop):
    """Each round stores one vector step in the replay buffer; every `train_frequency` env steps there are updates."""

    buffer: ReplayBuffer | ShardedReplay

    remainder = "less than one step of every env"

    def __init__(
        self, envs: VectorEnv | ActorCollector, spaces: Spaces, learner: Learner, config: TrainConfig, *parts: Any
    ):
        super().__init__(envs, spaces, learner, config, *parts)
        assert isinstance(config.algo_kwargs, ReplayConfig)
        self.settings = config.algo_kwargs
        self.buffer = self.make_buffer(envs, spaces)
        self.last_round = 0

    def make_buffer(self, envs: VectorEnv | ActorCollector, spaces: Spaces) -> ReplayBuffer | ShardedReplay:
        kwargs = self.config.env_kwargs
        memory_shape = getattr(getattr(self.learner, "model", None), "memory_shape", None)
        return make_replay(spaces, self.settings, envs.num_envs, kwargs, lambda: self._hindsight(envs), memory_shape)

    def _hindsight(self, envs: VectorEnv | ActorCollector) -> Hindsight:
        if isinstance(envs, ActorCollector):
            raise ConfigError("algo_kwargs.hindsight: not available with actors, set runtime.actors=1 or hindsight=0")
        columns = GoalColumns.of(self.learner.spaces)
        rules = goal_rules(envs, columns)
        return Hindsight(self.settings.hindsight, columns, rules, self.learner.shape_rewards)

    @property
    def is_over(self) -> bool:
        return self.env_steps + self.collector.num_envs > self.config.total_timesteps

    def round(self) -> Progress | None:
        if self.is_over:
            return None
        warming_up = self.env_steps < self.settings.learning_starts
        step = self.collector.step(random=warming_up, repeat=self.settings.warm_up_repeat)
        self.learner.observe(step.obs, step.valid)
        assert isinstance(self.buffer, ReplayBuffer)
        if step.broken is not None:
            self.buffer.cut(step.broken)
        rewards = self.shape_rewards(step.rewards)
        for reward in rewards.tolist():  # for a few envs faster than NumPy
            if not -self.reward_max <= reward <= self.reward_max:
                self.reward_max = abs(reward)
        self.buffer.add(
            step.obs,
            step.actions,
            rewards,
            step.next_obs,
            step.terminated,
            step.truncated,
            step.valid,
            *(({MEMORY: step.memory},) if isinstance(self.buffer, TrajectoryReplay) else ()),
        )
        self.clock.env_steps += int(np.count_nonzero(step.valid))
        results = [self._update() for _ in range(self._updates_due())]
        if step.episodes:
            self.learner.episodes(step.episodes)
        return Progress(self.env_steps, self.learner.updates, results, step.episodes)

    def _update(self) -> UpdateResult:
        settings = self.settings
        exponent = self.learner.scheduled(settings.importance_exponent) if settings.prioritized else None
        batch = self.buffer.sample(settings.batch_size, self.streams["replay"], exponent)
        result = self.learn(batch)
        if result.priorities is not None and batch.indices is not None:
            self.buffer.update_priorities(batch.indices, result.priorities)
        return result

    def _updates_due(self) -> int:
        """The number of updates that are due now.

        With more envs than `train_frequency`, one vector step makes several rounds of updates due. So the ratio of
        updates to env steps is the same for any number of envs.
        """
        if self.env_steps < self.settings.learning_starts:
            self.last_round = self.env_steps
            return 0
        rounds, _ = divmod(self.env_steps - self.last_round, self.settings.train_frequency)
        self.last_round += rounds * self.settings.train_frequency
        if rounds and not len(self.buffer):  # no window is complete yet
            return 0
        per_round = self.settings.gradient_steps
        return rounds * (self.settings.train_frequency if per_round == -1 else per_round)

    def barrier(self) -> None:
        self.buffer.cut()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"last_round": self.last_round, "buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.last_round = int(state["last_round"])
        self.buffer.load_state_dict(state["buffer"])
