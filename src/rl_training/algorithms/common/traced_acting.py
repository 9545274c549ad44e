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

from rl_training.models.distributions import Categorical, DiagonalGaussian
from rl_training.models.encoders.encoder import VectorEncoder
from rl_training.models.encoders.normalizer import NormalizingModel
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.policy import PolicyModel

# What `PolicyModel.act` and `PolicyModel.policy` go through. They agree only as they are written there.
ACTING_METHODS = (
    "policy",
    "policy_numpy",
    "_input",
    "_normalized",
    "_policy_parameters",
    "_policy_parameters_numpy",
    "_with_log_std",
)


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


def samples_as_traced(model: object) -> bool:
    """Whether `act` of a model does what `policy_sampling` traces. A subclass may act in its own way."""
    if not isinstance(model, PolicyModel) or model.values_while_acting:
        return False
    samples = has_methods_of(PolicyModel, model, "act") or has_methods_of(MLPActorCritic, model, "act")
    ours = type(model.distribution) in (Categorical, DiagonalGaussian)
    return samples and ours and has_methods_of(PolicyModel, model, *ACTING_METHODS)


def has_methods_of(base: type, thing: object, *names: str) -> bool:
    """Whether `thing` has these methods as `base` has them: neither a subclass nor the object replaces one."""
    return all(
        getattr(type(thing), name) is getattr(base, name) and name not in getattr(thing, "__dict__", {})
        for name in names
    )


def takes_vectors(model: NormalizingModel) -> bool:
    """Whether observations are vectors without a mask of actions, which is all that compiled rollouts know."""
    return isinstance(getattr(model, "encoder", None), VectorEncoder) and not model.mask_size
