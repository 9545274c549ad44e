"""Batches as an algorithm's own loop hands them to its learner."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import TrainConfig
from rl_training.envs.factory import make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_spec


def build(config: TrainConfig) -> tuple[Any, Learner]:
    """A loop and its learner, nothing else."""
    envs = make_vector_env(config.env_id, config.num_envs)
    spaces, streams = Spaces(envs.single_observation_space, envs.single_action_space), Streams(config.seed)
    learner = get_spec(config.algo).learner(spaces, config, streams)
    return get_spec(config.algo).loop(envs, spaces, learner, config, streams), learner


def batches_of(config: TrainConfig, count: int) -> tuple[list[Any], Learner]:
    """The first batches that the algorithm's own loop hands to its learner, which stays as it was built."""
    loop, learner = build(config)
    taken: list[Any] = []

    def take(batch: Any) -> UpdateResult:
        taken.append(deepcopy(batch))  # a rollout is valid only until the next one is collected
        return UpdateResult({})

    learner.update = take  # type: ignore[method-assign]
    while len(taken) < count:
        assert loop.round() is not None
    return taken, build(config)[1]
