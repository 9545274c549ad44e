"""What an actor of A3C does with its rollout: shapes the rewards as the loop would, and computes the gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.common.rewards import ReturnNormalizer
from rl_training.data.gradient_push import Push
from rl_training.data.rollout import Rollout


class GradientMaker:
    """Turns rollouts of `num_envs` envs into pushes, with a learner that computes gradients and is not changed."""

    def __init__(self, learner: Any, num_envs: int):
        self._learner = learner
        self._normalizer = ReturnNormalizer(learner.config.gamma, num_envs) if learner.return_normalizer else None

    def push(self, rollout: Rollout, returns: Mapping[str, Any] | None) -> tuple[Push, dict[str, Any] | None]:
        """The push of a rollout, and the statistics of returns after it. They continue from `returns` if given."""
        learner, normalizer = self._learner, self._normalizer
        if normalizer is not None and returns is not None:
            normalizer.load_state_dict(dict(returns))
        gradient, metrics, reward_max, moments = None, {}, 0.0, None
        if rollout.valid.any():
            rewards = learner.shape_rewards(rollout.rewards)
            if normalizer is not None:
                rewards = normalizer(rewards, rollout.episode_starts, rollout.valid)
            reward_max = float(np.abs(rewards).max())
            with one_thread():
                vector, tensors = learner.gradient(replace(rollout, rewards=rewards))
            gradient, metrics = vector.numpy(), {name: value.numpy() for name, value in tensors.items()}
            moments = learner.moments_of(rollout.obs, rollout.valid)
        state = None if normalizer is None else normalizer.state_dict()
        return Push(gradient, metrics, rollout.rewards, rollout.valid, reward_max, moments), state


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, as in the process of an actor: sums of several may round differently."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
