"""APPO: PPO's clipped surrogate on trajectories of a policy that may be several updates old, with V-trace.

The name is used for two things, and both are here. Without a target network it is the asynchronous PPO of Sample
Factory (Petrenko et al., 2020, arXiv:2006.11751): the ratio is pi/mu, against the policy that acted. With
`target_update_every` it is IMPACT (Luo et al., 2019, arXiv:1912.00167), which RLlib calls APPO: V-trace goes
towards a slowly copied target policy pi_t, and the ratio is min(mu/pi_t, 2) pi/mu, which is pi/pi_t unless the
actor was far ahead of the target; `kl_coef` adds KL(pi_t || pi).

Deviations: without a target network the advantages carry no weight of their own, for the ratio pi/mu is that
weight already (Sample Factory multiplies both); with one, rollouts are used up in turn instead of through a
circular buffer, the copies go by env steps, and the KL coefficient is fixed. Values bootstrap from the current
critic. Advantages are normalised per minibatch, and V-trace is computed anew for every minibatch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.learner import Action, Counter, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import PolicyBatch, ReturnNormalizer, learner_rewards, normalize
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.returns import explained_variance
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.algorithms.common.trajectories import (
    Trajectories,
    approximate_kl,
    column_groups,
    importance_metrics,
)
from rl_training.algorithms.ppo import ppo_policy_loss
from rl_training.config.appo import APPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic

LARGEST_BEHAVIOUR_RATIO = 2.0  # of mu/pi_t; RLlib's choice for what IMPACT leaves open


def impact_log_probs(target_log_probs: Tensor, behaviour_log_probs: Tensor) -> Tensor:
    """log of what IMPACT's ratio divides pi by:  min(mu/pi_t, 2) pi/mu = pi / max(pi_t, mu/2).  All [B]."""
    return torch.max(target_log_probs, behaviour_log_probs - math.log(LARGEST_BEHAVIOUR_RATIO))


def appo_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: PolicyBatch,
    config: APPOConfig,
    *,
    clip_range: float,
    entropy_coef: float,
    kl: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """L = -mean min(r A, clip(r, 1 - eps, 1 + eps) A)  +  c_v 1/2 mean (v - V)^2  -  c_e mean H  +  c_kl mean KL

    r = pi / exp(batch.log_probs), which is pi/mu, or IMPACT's ratio; A and v (`batch.returns`) come from V-trace
    and are constants; `kl` is KL(pi_t || pi). All inputs [B].
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = ppo_policy_loss(log_probs, batch.log_probs, advantages, clip_range)
    value_loss = 0.5 * (values - batch.returns).square().mean()
    mean_entropy = entropy.mean()
    loss = policy_loss + config.value_coef * value_loss - entropy_coef * mean_entropy
    metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}
    if kl is not None:
        metrics["kl_to_target"] = kl.mean()
        loss = loss + config.kl_coef * metrics["kl_to_target"]
    metrics = {name: value.detach() for name, value in (metrics | {"loss": loss}).items()}
    with torch.no_grad():
        ratio = (log_probs - batch.log_probs).exp()
        metrics["clip_fraction"] = ((ratio - 1).abs() > clip_range).float().mean()
    metrics["approx_kl"] = approximate_kl(log_probs, batch.log_probs)
    metrics["explained_variance"] = explained_variance(batch.values, batch.returns)
    return loss, metrics


class APPO(Learner):
    """Several passes over each rollout, in minibatches of whole envs."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, APPOConfig)
        self.config = config.algo_kwargs
        self.model: MLPActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPActorCritic(spaces, self.model_config))
        )
        self.optimizer = Optimizer(
            self.model.parameters(), epsilon=self.config.adam_epsilon, max_grad_norm=self.config.max_grad_norm
        )
        self.target = TargetNetwork(self.model) if self.config.target_update_every is not None else None
        self.target_copies = Counter()
        self.return_normalizer = (
            ReturnNormalizer(self.config.gamma, self.num_envs) if self.config.normalize_rewards else None
        )

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        return Action(*self.model.act(obs, self.streams["exploration"] if explore else None))

    def update(self, batch: Rollout) -> UpdateResult:
        rollout = replace(batch, rewards=learner_rewards(self, self.return_normalizer, batch))
        learning_rate = self.scheduled(self.config.learning_rate)
        self.optimizer.set_learning_rate(learning_rate)
        clip_range, entropy_coef = self.scheduled(self.config.clip_range), self.scheduled(self.config.entropy_coef)
        self._move_target()
        history: list[Metrics] = []
        for group in self._minibatches(rollout):
            trajectories = Trajectories(group, self.model)
            data, kl, measured = self._prepare(trajectories)
            loss, metrics = appo_loss(
                *trajectories.outputs, data, self.config, clip_range=clip_range, entropy_coef=entropy_coef, kl=kl
            )
            metrics |= measured | {"grad_norm": self.optimizer.step(loss)}
            history.append(metrics)
        self.updates += 1
        self.observe(batch.obs, batch.valid)
        return UpdateResult(mean_metrics(history) | {"learning_rate": torch.tensor(learning_rate)})

    def _prepare(self, trajectories: Trajectories) -> tuple[PolicyBatch, Tensor | None, Metrics]:
        """Advantages, targets and what the ratio is taken against; the divergence from the target if it counts."""
        behaviour, kl = trajectories.behaviour_log_probs, None
        if self.target is None:
            learned = trajectories.log_probs.detach()
            found = trajectories.vtrace(learned, self.config)
            data = trajectories.batch(behaviour, found.advantages, found.targets)
        else:
            target, obs = self.target.module, trajectories.obs
            with torch.no_grad():
                policy = target.policy(obs)
                learned = target.distribution.log_prob(policy, trajectories.actions)
            found = trajectories.vtrace(learned, self.config)
            reference = impact_log_probs(learned, behaviour)
            data = trajectories.batch(reference, found.policy_gradient_advantages, found.targets)
            if self.config.kl_coef > 0:
                kl = trajectories.valid(target.distribution.kl(policy, self.model.policy(obs)))
        rows = (trajectories.valid(learned), trajectories.valid(behaviour))
        return data, kl, importance_metrics(*rows, self.config.rho_bar)

    def _minibatches(self, rollout: Rollout) -> Iterator[Rollout]:
        for _ in range(self.config.update_epochs):
            yield from column_groups(rollout, self.config.num_minibatches, self.streams["minibatches"])

    def _move_target(self) -> None:
        if self.target is None or self.config.target_update_every is None:
            return
        if (due := self.env_steps // self.config.target_update_every) > self.target_copies.value:
            self.target_copies.value = due
            self.target.follow()
