"""APPO: PPO's clipped surrogate on trajectories of a policy that may be several updates old, with V-trace.

The name stands for two algorithms, and this file has both. Without a target network it is the asynchronous PPO of
Sample Factory (Petrenko et al., 2020, arXiv:2006.11751): the ratio is pi/mu, against the policy that acted. With
`target_update_every` it is IMPACT (Luo et al., 2019, arXiv:1912.00167), which RLlib calls APPO: V-trace is computed for
a target policy pi_t that is copied at intervals, and the ratio is min(mu/pi_t, 2) pi/mu, which is pi/pi_t unless the
actor was far ahead of the target; `kl_coef` adds KL(pi_t || pi).

Deviations: without a target network the advantages have no importance weight, because the ratio pi/mu already is that
weight (Sample Factory multiplies by both). With one, each rollout is used once instead of going through a circular
buffer, copies are counted in env steps, and the KL coefficient is fixed. Values bootstrap from the current critic.
Advantages are normalized per minibatch (`normalize_advantages=true`), and V-trace is recomputed for every minibatch. On
vectors, policy and value are separate networks; on images they share the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from rl_training.algorithms.common.counters import Counter
from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import PolicyBatch, actor_critic_loss, normalize, spread_metrics
from rl_training.algorithms.common.returns import explained_variance
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.algorithms.common.trajectories import Trajectories, column_groups, importance_metrics
from rl_training.algorithms.ppo import ppo_policy_loss, ratio_metrics
from rl_training.config.algorithms.appo import APPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic

LARGEST_BEHAVIOR_RATIO = 2.0  # of mu/pi_t; IMPACT leaves it open, and RLlib uses this value


def impact_log_probs(target_log_probs: Tensor, behavior_log_probs: Tensor) -> Tensor:
    """log of the denominator of IMPACT's ratio:  min(mu/pi_t, 2) pi/mu = pi / max(pi_t, mu/2).  All [B]."""
    return torch.max(target_log_probs, behavior_log_probs - math.log(LARGEST_BEHAVIOR_RATIO))


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

    r = pi / exp(batch.log_probs) is pi/mu, or IMPACT's ratio. A and v (`batch.returns`) come from V-trace and are
    constants. `kl` is KL(pi_t || pi). All inputs are [B].
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = ppo_policy_loss(log_probs, batch.log_probs, advantages, clip_range)
    value_loss = 0.5 * (values - batch.returns).square().mean()
    loss, metrics = actor_critic_loss(
        policy_loss, value_loss, entropy, value_coef=config.value_coef, entropy_coef=entropy_coef
    )
    if kl is not None:
        mean_kl = kl.mean()
        loss = loss + config.kl_coef * mean_kl
        metrics |= {"loss": loss.detach(), "kl_to_target": mean_kl.detach()}
    metrics |= ratio_metrics(log_probs, batch.log_probs, clip_range)
    return loss, metrics | {"explained_variance": explained_variance(batch.values, batch.returns)}


class APPO(Learner[APPOConfig]):
    """Several epochs over each rollout, in minibatches of whole envs."""

    probe_every = 10

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, epsilon=self.config.adam_epsilon)
        self.target = None
        if self.config.target_update_every is not None:
            self.target = TargetNetwork(self.model, copied=True)
        else:
            self.target_copies = Counter()  # checkpoints have it with and without a target

    def update(self, rollout: Rollout) -> UpdateResult:
        self.set_learning_rates()
        clip_range, entropy_coef = self.scheduled(self.config.clip_range), self.scheduled(self.config.entropy_coef)
        if self.target is not None and self.config.target_update_every is not None:
            self.target.copy_every(self.env_steps, self.config.target_update_every)
        history: list[Metrics] = []
        for group in self._groups(rollout):
            trajectories = Trajectories(group, self.model)
            minibatch, kl, importance = self._prepare(trajectories)
            loss, metrics = appo_loss(
                *trajectories.outputs, minibatch, self.config, clip_range=clip_range, entropy_coef=entropy_coef, kl=kl
            )
            metrics |= spread_metrics(minibatch, metrics["entropy"], self.model)
            metrics |= importance | {"grad_norm": self.optimizer.step(loss)}
            history.append(metrics)
        self.updates += 1
        metrics = mean_metrics(history) | self.probe(lambda: trajectories.evaluate(some_rows))
        return UpdateResult(metrics | {"learning_rate": self.scheduled_tensor(self.config.learning_rate)})

    def _prepare(self, trajectories: Trajectories) -> tuple[PolicyBatch, Tensor | None, Metrics]:
        """A minibatch with its V-trace advantages, KL(pi_t || pi) if the loss uses it, and importance metrics."""
        behavior, kl = trajectories.behavior_log_probs, None
        if self.target is None:
            learned = trajectories.log_probs.detach()
            vtrace = trajectories.vtrace(learned, self.config)
            minibatch = trajectories.batch(behavior, vtrace.advantages, vtrace.targets)
        else:
            target, obs = self.target.module, trajectories.obs
            with torch.no_grad():
                policy = target.policy(obs)
                learned = target.distribution.log_prob(policy, trajectories.actions)
            vtrace = trajectories.vtrace(learned, self.config)
            reference = impact_log_probs(learned, behavior)
            minibatch = trajectories.batch(reference, vtrace.policy_gradient_advantages, vtrace.targets)
            if self.config.kl_coef > 0:
                kl = trajectories.valid(target.distribution.kl(policy, self.model.policy(obs)))
        rows = (trajectories.valid(learned), trajectories.valid(behavior))
        return minibatch, kl, importance_metrics(*rows, self.config.rho_bar)

    def _groups(self, rollout: Rollout) -> Iterator[Rollout]:
        for _ in range(self.config.update_epochs):
            yield from column_groups(rollout, self.config.num_minibatches, self.streams["minibatches"])
