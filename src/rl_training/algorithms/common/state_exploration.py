"""Exploration by noise that is a lasting function of the state: what PPO, A2C, SAC and TQC share of gSDE.

Raffin et al. (2021), arXiv:2005.05719. The policy is a Gaussian whose variance depends on the state
(`models/layers/exploration_head.py`), so no loss changes. Only acting does: its noise comes from a matrix per env that
stays for `noise_interval` steps or an episode.

Deviations: a loss that samples actions (SAC) draws independent noise for each row, where the authors' code draws one
matrix for the whole batch (same distribution of each action, less variance); matrices are kept as standard normal
numbers and scaled when they are used, so that stored log-probabilities belong to the deviations of now; an episode
starts with a new matrix.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from rl_training.algorithms.common.learner import Action, Learner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithm_table import SPACE_NAMES
from rl_training.config.base import AlgorithmConfig
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError

Config = TypeVar("Config", bound=AlgorithmConfig)


class NoiseMatrices:
    """Standard normal numbers [N, F, A], one matrix per env, each with its age in steps.

    They are no part of a checkpoint. After a checkpoint every env starts an episode, in the run that continues too,
    so all matrices are drawn anew.
    """

    def __init__(self, interval: int | None):
        self.interval = interval
        self.matrices = np.zeros((0, 0, 0), np.float32)
        self.ages = np.zeros(0, np.int64)

    def at(self, shape: tuple[int, ...], episode_starts: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
        """The matrices of one step; those that are due are drawn first."""
        if self.matrices.shape != shape:
            self.matrices, self.ages = np.zeros(shape, np.float32), np.zeros(shape[0], np.int64)
        due = self.ages == 0 if self.interval is None else self.ages % self.interval == 0
        if episode_starts is not None:
            due = due | episode_starts
        count = np.count_nonzero(due)
        if count:
            self.matrices[due] = rng.standard_normal((count, *shape[1:]), dtype=np.float32)
            self.ages[due] = 0
        self.ages += 1
        return self.matrices


class StateNoiseLearner(Learner[Config]):
    """A learner with the settings `StateNoiseConfig`. Its model has `explore` and `noise_shape`. List it first."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        if getattr(config.algo_kwargs, "state_dependent_noise", False) and spaces.action_kind != "box":
            raise ConfigError(
                f"algo_kwargs.state_dependent_noise: needs Box actions, but those of {config.env_id} are "
                f"{SPACE_NAMES[spaces.action_kind]}; set it to false",
                key="algo_kwargs.state_dependent_noise",
            )
        super().__init__(spaces, config, streams)
        settings: Any = self.config
        self.noise_matrices = NoiseMatrices(settings.noise_interval) if settings.state_dependent_noise else None

    @property
    def initial_noise(self) -> float | None:
        """What the model needs to know: the initial log-std of its noise matrix, or None if it has none."""
        settings: Any = self.config
        initial: float | None = settings.noise_log_std if settings.state_dependent_noise else None
        return initial

    def _only_samples(self) -> bool:
        return type(self).act is StateNoiseLearner.act and self.noise_matrices is None

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        if not explore or self.noise_matrices is None:
            return super().act(obs, explore=explore, episode_starts=episode_starts, memory=memory)
        shape = (len(obs), *self.model.noise_shape)
        matrices = self.noise_matrices.at(shape, episode_starts, self.streams["exploration"])
        return Action(*self.model.explore(obs, matrices))
