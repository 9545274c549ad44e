"""What the on-policy algorithms share: from a rollout to a flat batch with advantages, and minibatches of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.returns import gae
from rl_training.data.rollout import Rollout
from rl_training.models.policy import PolicyModel


@dataclass(slots=True)
class PolicyBatch:
    """The valid steps of a rollout, flattened to [B, ...]."""

    obs: Tensor
    actions: Tensor
    log_probs: Tensor  # of the policy that acted
    values: Tensor  # V(s) before the update
    advantages: Tensor
    returns: Tensor  # advantage + value: the critic's target

    def __len__(self) -> int:
        return len(self.advantages)

    def select(self, indices: Tensor) -> PolicyBatch:
        return PolicyBatch(*(getattr(self, f.name)[indices] for f in fields(self)))

    def split(self, pieces: int) -> Iterator[PolicyBatch]:
        columns = [torch.tensor_split(getattr(self, f.name), pieces) for f in fields(self)]
        return (PolicyBatch(*row) for row in zip(*columns, strict=True))


def policy_batch(
    rollout: Rollout, rewards: np.ndarray, model: PolicyModel, *, gamma: float, gae_lambda: float
) -> PolicyBatch:
    """Values in one batched call, bootstraps by the boundary rules of `Rollout`, advantages by GAE.

    Where the model gave values with its actions, only those of what followed are left to compute.
    """
    device = next(model.parameters()).device
    num_steps, num_envs = rollout.rewards.shape
    flat_obs = rollout.obs.reshape(num_steps * num_envs, *rollout.obs.shape[2:])
    # One copy for all: the collector writes the next rollout into the same arrays.
    every_obs = np.concatenate([flat_obs, rollout.last_obs, rollout.final_obs])
    obs, what_followed = every_obs[: len(flat_obs)], every_obs[len(flat_obs) :]
    values = rollout.extras.get("values")
    if values is None:
        values, following_values = np.split(model.value_numpy(every_obs), [len(flat_obs)])
        values = values.reshape(num_steps, num_envs)
    else:
        following_values = model.value_numpy(what_followed)
    last_values, final_values = np.split(following_values, [num_envs])
    batch = flat_batch(
        rollout,
        rewards,
        values,
        last_values,
        final_values,
        gamma=gamma,
        gae_lambda=gae_lambda,
        obs=torch.from_numpy(obs).to(device),
    )
    if rollout.valid.all():
        return batch
    return batch.select(torch.from_numpy(np.flatnonzero(rollout.valid)).to(device))


def flat_batch(
    rollout: Rollout,
    rewards: np.ndarray,
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
    advantages = gae(rewards, values, next_values, rollout.discounts(gamma), rollout.ends, gae_lambda)

    def flat(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.reshape(-1, *array.shape[2:])).to(obs.device)

    return PolicyBatch(
        obs=obs,
        actions=flat(rollout.actions),
        log_probs=flat(rollout.extras["log_probs"]),
        values=flat(values),
        advantages=flat(advantages),
        returns=flat(advantages + values),
    )


def minibatches(batch: PolicyBatch, size: int, rng: np.random.Generator) -> Iterator[PolicyBatch]:
    """One epoch in random order, in pieces of about `size`.

    The pieces are as equal as can be: a last piece of a few rows would weigh as much as a full one, and its
    advantages could not be normalised. Shuffling once and slicing costs one gather per epoch.
    """
    order = torch.from_numpy(rng.permutation(len(batch)))
    return batch.select(order).split(max(1, round(len(batch) / size)))


def normalize(advantages: Tensor) -> Tensor:
    """Mean 0, standard deviation 1; a batch of one row is only centred (its deviation does not exist)."""
    centred = advantages - advantages.mean()
    return centred if len(advantages) < 2 else centred / (advantages.std() + 1e-8)


class ReturnNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, so that values stay near 1.

    The return is accumulated per env and starts anew with each episode. Means are not subtracted: shifting
    rewards changes what is optimal. Scaled rewards are clipped to +-10.
    """

    def __init__(self, gamma: float, num_envs: int):
        self.gamma = gamma
        self.running = np.zeros(num_envs)
        self.count, self.mean, self.variance = 0.0, 0.0, 1.0

    def __call__(self, rewards: np.ndarray, episode_starts: np.ndarray, valid: np.ndarray) -> np.ndarray:
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            # By starts, not by ends: an episode that a checkpoint cut has no end, but the next one has a start.
            self.running = self.running * self.gamma * ~episode_starts[t] + rewards[t]
            returns[t] = self.running
        self._merge(returns[valid])
        scale = 1.0 / np.sqrt(self.variance + 1e-8)
        return np.clip(rewards * np.float32(scale), -10.0, 10.0).astype(np.float32)

    def _merge(self, returns: np.ndarray) -> None:
        total = self.count + returns.size
        if total == self.count:
            return
        delta = float(returns.mean()) - self.mean
        spread = self.variance * self.count + float(returns.var()) * returns.size
        self.variance = (spread + delta**2 * self.count * returns.size / total) / total
        self.mean += delta * returns.size / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        return {"running": self.running, "count": self.count, "mean": self.mean, "variance": self.variance}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.running = np.array(state["running"])
        self.count, self.mean, self.variance = state["count"], state["mean"], state["variance"]


def learner_rewards(learner: Learner, normalizer: ReturnNormalizer | None, rollout: Rollout) -> np.ndarray:
    """The rewards the losses see: scaled and clipped, then normalised if the config asks for it."""
    rewards = learner.shape_rewards(rollout.rewards)
    return rewards if normalizer is None else normalizer(rewards, rollout.episode_starts, rollout.valid)
