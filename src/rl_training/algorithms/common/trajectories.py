"""Whole trajectories for V-trace: groups of env columns, with the current policy's outputs for every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.on_policy import PolicyBatch
from rl_training.algorithms.common.vtrace import VTrace, vtrace
from rl_training.config.algorithms.common.vtrace import VTraceConfig
from rl_training.data.rollout import ROLLOUT_FIELDS, Rollout
from rl_training.models.policy import PolicyModel


def env_columns(rollout: Rollout, envs: np.ndarray) -> Rollout:
    """The rollout of these envs only, in this order."""
    per_step = {name: getattr(rollout, name)[:, envs] for name in ROLLOUT_FIELDS}
    position = np.full(rollout.rewards.shape[1], -1)
    position[envs] = np.arange(len(envs))
    kept = position[rollout.final_envs] >= 0
    return replace(
        rollout,
        **per_step,
        last_obs=rollout.last_obs[envs],
        final_steps=rollout.final_steps[kept],
        final_envs=position[rollout.final_envs[kept]],
        final_obs=rollout.final_obs[kept],
        extras={name: value[:, envs] for name, value in rollout.extras.items()},
    )


def column_groups(rollout: Rollout, count: int, rng: np.random.Generator) -> Iterator[Rollout]:
    """`count` groups of envs in random order; trajectories stay whole."""
    groups: Iterable[Rollout] = [rollout]
    if count > 1:
        orders = np.split(rng.permutation(rollout.rewards.shape[1]), count)
        groups = (env_columns(rollout, envs) for envs in orders)
    # Under next-step autoreset, a very short group may contain only resets, with nothing to learn from.
    return (group for group in groups if group.valid.any())


class Trajectories:
    """A rollout as flat tensors, with the current model's log-probabilities, entropies and values of every step."""

    def __init__(self, rollout: Rollout, model: PolicyModel):
        if "log_probs" not in rollout.extras:
            raise ValueError(
                "the rollout has no extras['log_probs']: V-trace needs the log-probabilities of the policy that acted"
            )
        self.rollout, self.model = rollout, model
        self.device = next(model.parameters()).device
        flat_obs = rollout.obs.reshape(-1, *rollout.obs.shape[2:])
        every_obs = torch.from_numpy(np.concatenate([flat_obs, rollout.last_obs, rollout.final_obs])).to(self.device)
        self.obs, self.following_obs = every_obs[: len(flat_obs)], every_obs[len(flat_obs) :]
        self.actions = self.flat(rollout.actions)
        self.behavior_log_probs = self.flat(rollout.extras["log_probs"])
        self.log_probs, self.entropy, self.values = model.evaluate_actions(self.obs, self.actions)
        self.rows = None if rollout.valid.all() else self.flat(rollout.valid)

    def flat(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.reshape(-1, *array.shape[2:])).to(self.device)

    def valid(self, rows: Tensor) -> Tensor:
        return rows if self.rows is None else rows[self.rows]

    @property
    def outputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """log pi(a|s), entropy and value of the valid steps, each [B], with their gradients."""
        return self.valid(self.log_probs), self.valid(self.entropy), self.valid(self.values)

    def evaluate(self, choose: Callable[[Tensor], Tensor]) -> None:
        """Call the model as it is now on some of the steps."""
        self.model.evaluate_actions(choose(self.obs), choose(self.actions))

    def vtrace(self, log_probs: Tensor, config: VTraceConfig) -> VTrace:
        """V-trace for the policy with these log-probabilities, with values of the current model."""
        rollout, shape = self.rollout, self.rollout.rewards.shape
        with torch.no_grad():
            following = self.model.value(self.following_obs).cpu().numpy()
        values = self.values.detach().cpu().numpy().reshape(shape)
        return vtrace(
            rollout.rewards,
            values,
            rollout.next_values(values, *np.split(following, [shape[1]])),
            rollout.discounts(config.gamma),
            rollout.ends,
            log_probs.detach().cpu().numpy().reshape(shape),
            rollout.extras["log_probs"],
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            pg_rho_bar=config.pg_rho_bar,
            trace_lambda=config.gae_lambda,
        )

    def batch(self, log_probs: Tensor, advantages: np.ndarray, targets: np.ndarray) -> PolicyBatch:
        """The valid steps; `log_probs` are the denominator of the policy's ratio."""
        columns = (self.obs, self.actions, log_probs, self.values.detach(), self.flat(advantages), self.flat(targets))
        return PolicyBatch(*(self.valid(column) for column in columns))


def importance_metrics(log_probs: Tensor, behavior_log_probs: Tensor, rho_bar: float) -> Metrics:
    """Mean of the capped weights pi/mu, and the share of weights above the cap. Both inputs are [B]."""
    with torch.no_grad():
        weights = (log_probs - behavior_log_probs).exp()
        return {
            "rho_mean": weights.clamp(max=rho_bar).mean(),
            # Room for rounding: the weights of fresh rollouts are 1 to about seven digits, and 1 is the usual cap.
            "rho_clip_fraction": (weights > 1.0001 * rho_bar).float().mean(),
        }


def approximate_kl(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """mean((r - 1) - log r), which is never negative; the mean of -log r can be."""
    with torch.no_grad():
        log_ratio = log_probs - old_log_probs
        return (log_ratio.exp() - 1 - log_ratio).mean()
