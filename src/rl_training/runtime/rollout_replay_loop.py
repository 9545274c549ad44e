"""The loop of algorithms that learn from every rollout, and then from windows of older ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.config.base import RolloutReplayConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.replay_factory import make_trajectory_replay
from rl_training.data.rollout import Rollout
from rl_training.data.trajectory_replay import TrajectoryReplay, WindowOptions
from rl_training.envs.spaces import Spaces
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.loops import OnPolicyLoop


class RolloutReplayLoop(OnPolicyLoop):
    """Each round updates on the new rollout, then a random number of times on replayed windows.

    The learner gets `Windows` in both cases. `replay_columns` of the learner are kept with every step.
    """

    buffer: TrajectoryReplay

    def __init__(
        self, envs: VectorEnv | ActorCollector, spaces: Spaces, learner: Learner, config: TrainConfig, *parts: Any
    ):
        super().__init__(envs, spaces, learner, config, *parts)
        assert isinstance(config.algo_kwargs, RolloutReplayConfig)
        self.settings = settings = config.algo_kwargs
        columns = learner.replay_columns(spaces)
        window = WindowOptions(settings.num_steps)
        self.buffer = make_trajectory_replay(spaces, settings, envs.num_envs, config.env_kwargs, window, columns)

    def learn_from(self, rollout: Rollout) -> list[UpdateResult]:
        self._store(rollout)
        results = [self.learn(self.buffer.newest(len(rollout.rewards)))]
        if self.env_steps < self.settings.replay_starts or not len(self.buffer):
            return results
        rng = self.streams["replay"]
        for _ in range(rng.poisson(self.settings.replay_ratio)):
            results.append(self.learn(self.buffer.sample(self.collector.num_envs, rng)))
        return results

    def _store(self, rollout: Rollout) -> None:
        """Add the steps of a rollout, each with the observation that really followed."""
        following = np.concatenate([rollout.obs[1:], rollout.last_obs[None]])
        following[rollout.final_steps, rollout.final_envs] = rollout.final_obs
        for step in range(len(rollout.rewards)):
            self.buffer.add(
                rollout.obs[step],
                rollout.actions[step],
                rollout.rewards[step],
                following[step],
                rollout.terminated[step],
                rollout.truncated[step],
                rollout.valid[step],
                {name: rollout.extras[name][step] for name in self.buffer.extra_names},
            )

    def barrier(self) -> None:
        self.buffer.cut()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.buffer.load_state_dict(state["buffer"])
