"""Acting in a compiled rollout: what `Learner.act` does with exploration, in two parts.

A rollout that is one function (`runtime/collection/compiled_rollout.py`) cannot draw random numbers. They are drawn
before it, for all of its steps, and each step decides with its share of them, in torch. Both parts belong to the
learner: they follow its `act`, which draws the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rl_training.models.encoders.encoder import VectorEncoder
from rl_training.models.encoders.normalizer import NormalizingModel
from rl_training.models.policy import PolicyModel


@dataclass(frozen=True, slots=True)
class TracedActing:
    """`draws(rng, steps, rows)` is what so many calls of `act` for `rows` envs draw, as one array [steps, ...].

    `choose(obs, drawn)` decides with the part of one step, as `act` does: actions, and the extras that a rollout keeps.
    """

    draws: Callable[[np.random.Generator, int, int], np.ndarray]
    choose: Callable[[Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]


def policy_sampling(model: PolicyModel) -> TracedActing:
    """Actions sampled from the policy of `model`, with their log-probabilities."""
    distribution = model.distribution

    def choose(obs: Tensor, drawn: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        actions, log_probs = distribution.choose(model.policy(obs), drawn)
        return actions, {"log_probs": log_probs}

    return TracedActing(distribution.draws, choose)


def takes_vectors(model: NormalizingModel) -> bool:
    """Whether observations are vectors without a mask of actions, which is all that compiled rollouts know."""
    return isinstance(getattr(model, "encoder", None), VectorEncoder) and not model.mask_size
