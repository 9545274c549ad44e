"""From a rollout to minibatches: a flat batch with advantages, its minibatches, and the actor-critic loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from rl_training.algorithms.common.compile.compiled_loop import CompiledEpochs
from rl_training.algorithms.common.compile.compiled_step import CompiledStep, Scalar
from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.returns import explained_variance, gae
from rl_training.data.rollout import Rollout
from rl_training.models.distributions import Categorical
from rl_training.models.policy import PolicyModel

Batch = TypeVar("Batch", bound="RolloutBatch")


@dataclass(slots=True)
class RolloutBatch:
    """The valid steps of a rollout, flattened to [B, ...]. Subclasses add further columns."""

    obs: Tensor
    actions: Tensor

    def __len__(self) -> int:
        return len(self.obs)

    def select(self, indices: Tensor) -> Self:
        return type(self)(*(getattr(self, f.name)[indices] for f in fields(self)))

    def split(self, pieces: int) -> Iterator[Self]:
        columns = [torch.tensor_split(getattr(self, f.name), pieces) for f in fields(self)]
        return (type(self)(*row) for row in zip(*columns, strict=True))


@dataclass(slots=True)
class PolicyBatch(RolloutBatch):
    """What an actor-critic learns from."""

    log_probs: Tensor  # of the policy that acted
    values: Tensor  # V(s) before the update
    advantages: Tensor
    returns: Tensor  # advantage + value: the critic's target


def policy_batch(rollout: Rollout, model: PolicyModel, *, gamma: float, gae_lambda: float) -> PolicyBatch:
    """The valid steps of a rollout: values from one call of the model, bootstraps by `Rollout`, advantages by GAE.

    If `act` stored values with the actions, the model computes only those of the observations that follow.
    """
    device = next(model.parameters()).device
    num_steps, num_envs = rollout.rewards.shape
    flat_obs = rollout.obs.reshape(num_steps * num_envs, *rollout.obs.shape[2:])
    # One copy: the collector writes the next rollout into the same arrays.
    every_obs = np.concatenate([flat_obs, rollout.last_obs, rollout.final_obs])
    obs, following_obs = every_obs[: len(flat_obs)], every_obs[len(flat_obs) :]
    values = rollout.extras.get("values")
    if values is None:
        values, following_values = np.split(model.value_numpy(every_obs), [len(flat_obs)])
        values = values.reshape(num_steps, num_envs)
    else:
        following_values = model.value_numpy(following_obs)
    last_values, final_values = np.split(following_values, [num_envs])
    batch = flat_batch(
        rollout,
        values,
        last_values,
        final_values,
        gamma=gamma,
        gae_lambda=gae_lambda,
        obs=torch.from_numpy(obs).to(device),
    )
    return valid_rows(batch, rollout)


def valid_rows(batch: Batch, rollout: Rollout) -> Batch:
    """A batch of all rows of a rollout without those that are no transitions."""
    if rollout.valid.all():
        return batch
    return batch.select(torch.from_numpy(np.flatnonzero(rollout.valid)).to(batch.obs.device))


def flat(array: np.ndarray, device: torch.device) -> Tensor:
    """A column of a rollout [T, N, ...] as a column of a batch [T * N, ...], on `device`."""
    return torch.from_numpy(array.reshape(-1, *array.shape[2:])).to(device)


def flat_batch(
    rollout: Rollout,
    values: np.ndarray,
    last_values: np.ndarray,
    final_values: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
    obs: Tensor,
) -> PolicyBatch:
    """Every row of a rollout, valid or not, from V(obs) [T, N], V(last_obs) [N] and V(final_obs) [K]."""
    next_values = rollout.next_values(values, last_values, final_values)
    advantages = gae(rollout.rewards, values, next_values, rollout.discounts(gamma), rollout.ends, gae_lambda)
    return PolicyBatch(
        obs=obs,
        actions=flat(rollout.actions, obs.device),
        log_probs=flat(rollout.extras["log_probs"], obs.device),
        values=flat(values, obs.device),
        advantages=flat(advantages, obs.device),
        returns=flat(advantages + values, obs.device),
    )


def rollout_metrics(batch: PolicyBatch, metrics: Metrics, model: PolicyModel) -> Metrics:
    """What one rollout says about the critic, and how much of its freedom a policy of discrete actions still uses."""
    return {"explained_variance": explained_variance(batch.values, batch.returns)} | spread_metrics(
        batch, metrics["entropy"], model
    )


def spread_metrics(batch: PolicyBatch, entropy: Tensor, model: PolicyModel) -> Metrics:
    """The standard deviation of the value targets, and the entropy as a share of that of uniform choices.

    Uniform among the allowed actions; without a share if there never was a choice.
    """
    metrics = {"target_std": batch.returns.std(correction=0)}
    distribution = model.distribution
    if isinstance(distribution, Categorical) and distribution.most_entropy > 0:
        if not model.mask_size:
            metrics["entropy_share"] = entropy / distribution.most_entropy
        elif (allowed := float(distribution.most_entropy_of(batch.obs[:, -model.mask_size :]))) > 0:
            metrics["entropy_share"] = entropy / allowed
    return metrics


def minibatches(batch: Batch, size: int, rng: np.random.Generator, epochs: int = 1) -> Iterator[Batch]:
    """Minibatches of about `size` rows; every epoch has each row once, in another random order.

    The minibatches of an epoch are as equal as possible: a last one of a few rows would weigh as much as a full one,
    and its advantages could not be normalized. Shuffling once and slicing costs one gather per epoch.
    """
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(batch))).to(batch.obs.device)
        yield from batch.select(order).split(max(1, round(len(batch) / size)))


class GradientSteps:
    """All gradient steps of an algorithm on a rollout: `step(minibatch, ...)` for each minibatch of its epochs.

    Where the learner compiles, the steps on a rollout of the usual size are one function. A batch of another size goes
    through them one by one: through the compiled step if the rollout was whole and some of its rows are not valid, as
    with next-step autoreset, and uncompiled after a rollout that the end of the budget made shorter. So the arithmetic
    depends only on the sizes of rollout and batch.
    """

    def __init__(self, learner: Learner[Any], step: Callable[..., Metrics | None]):
        config = learner.config
        self._size, self._epochs = config.minibatch_size, config.update_epochs
        self._rows = config.num_steps * learner.num_envs
        self._step, self._compiled_step = step, learner.compiled(step, rows=self._size)
        self._loop: CompiledEpochs | None = None
        if self._compiled_step is not step and self._rows % self._size == 0:
            self._loop = CompiledEpochs(step, self._rows, lambda text: learner.note(text))

    @property
    def functions(self) -> list[CompiledStep | CompiledEpochs]:
        """Its compiled forms, of which a run may use one or both; without `compile`, none."""
        return [part for part in (self._compiled_step, self._loop) if isinstance(part, (CompiledStep, CompiledEpochs))]

    def __call__(self, batch: RolloutBatch, rollout_rows: int, rng: np.random.Generator, *rest: Tensor) -> Metrics:
        """The mean of each metric over the steps. A step that returns None ends them."""
        if self._loop is not None and len(batch) == self._rows:
            position = rng.bit_generator.state
            orders = np.concatenate([rng.permutation(len(batch)) for _ in range(self._epochs)])
            rows = torch.from_numpy(orders.reshape(-1, self._size))
            if self._loop.can_take(batch, rows, *rest):
                return self._loop(batch, rows, *rest)
            self._loop, rng.bit_generator.state = None, position
        step = self._step if self._loop is not None and rollout_rows < self._rows else self._compiled_step
        history: list[Metrics] = []
        for minibatch in minibatches(batch, self._size, rng, self._epochs):
            metrics = step(minibatch, *rest)
            if metrics is None:
                break
            history.append(metrics)
        return mean_metrics(history)


def normalize(advantages: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1; a single row has no deviation, and gets only mean 0."""
    centered = advantages - advantages.mean()
    return centered if len(advantages) < 2 else centered / (advantages.std() + 1e-8)


def actor_critic_loss(
    policy_loss: Tensor, value_loss: Tensor, entropy: Tensor, *, value_coef: float, entropy_coef: Scalar
) -> tuple[Tensor, Metrics]:
    """L = L_policy + c_v L_value - c_e mean H(pi(.|s)).   `entropy` [B]; each term is a metric."""
    mean_entropy = entropy.mean()
    loss = policy_loss + value_coef * value_loss - entropy_coef * mean_entropy
    metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}
    return loss, {name: value.detach() for name, value in metrics.items()}
