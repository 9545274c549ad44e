"""IMPALA: actor-critic on trajectories of a policy that may be several updates old, corrected by V-trace.

Espeholt et al. (2018), arXiv:1802.01561, section 4. The learner does not care where a rollout comes from: one
loop that collects and learns in turn, or actors that run ahead. The weights pi/mu come from the log-probabilities
that were stored when the actions were taken.

Deviations: losses are averaged, not summed, over the rollout, so gradient clip and epsilon are on another scale
(RMSprop's 1e-5 for the mean of 100 steps is the paper's 0.1 for their sum; much less lets the policy drift when there
is nothing to learn); policy and value are separate networks; a truncated episode bootstraps from its
true final observation; traces may be shortened by lambda (`gae_lambda`, 1 is the paper); a rollout may be dealt
into several gradient steps by whole envs, with weights taken anew before each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.learner import Action, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import PolicyBatch, ReturnNormalizer, learner_rewards, normalize
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.returns import explained_variance
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.trajectories import (
    Trajectories,
    approximate_kl,
    column_groups,
    importance_metrics,
)
from rl_training.config.impala import IMPALAConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def impala_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: PolicyBatch,
    config: IMPALAConfig,
    *,
    entropy_coef: float,
) -> tuple[Tensor, Metrics]:
    """L = -mean log pi(a|s) A  +  c_v 1/2 mean (v - V(s))^2  -  c_e mean H(pi(.|s))                 (section 4.2)

    A = min(pg_rho_bar, pi/mu) (r + gamma v' - V(s)) and v, the V-trace target, are constants. All inputs [B];
    `batch` has A as `advantages`, v as `returns` and log mu as `log_probs`.
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = -(log_probs * advantages).mean()
    value_loss = 0.5 * (values - batch.returns).square().mean()
    mean_entropy = entropy.mean()
    loss = policy_loss + config.value_coef * value_loss - entropy_coef * mean_entropy
    metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}
    metrics = {name: value.detach() for name, value in metrics.items()}
    metrics |= importance_metrics(log_probs, batch.log_probs, config.rho_bar)
    metrics["approx_kl"] = approximate_kl(log_probs, batch.log_probs)
    metrics["explained_variance"] = explained_variance(batch.values, batch.returns)
    return loss, metrics


class IMPALA(Learner):
    """One pass over each rollout, in one gradient step or a few."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, IMPALAConfig)
        self.config = config.algo_kwargs
        self.model: MLPActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPActorCritic(spaces, self.model_config))
        )
        self.optimizer = Optimizer(
            self.model.parameters(),
            kind=self.config.optimizer,
            epsilon=self.config.optimizer_epsilon,
            decay=self.config.rmsprop_decay,
            max_grad_norm=self.config.max_grad_norm,
        )
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
        entropy_coef = self.scheduled(self.config.entropy_coef)
        history: list[Metrics] = []
        for group in column_groups(rollout, self.config.num_minibatches, self.streams["minibatches"]):
            trajectories = Trajectories(group, self.model)
            found = trajectories.vtrace(trajectories.log_probs, self.config)
            data = trajectories.batch(trajectories.behaviour_log_probs, found.policy_gradient_advantages, found.targets)
            loss, metrics = impala_loss(*trajectories.outputs, data, self.config, entropy_coef=entropy_coef)
            metrics["grad_norm"] = self.optimizer.step(loss)
            history.append(metrics)
        self.updates += 1
        self.observe(batch.obs, batch.valid)
        return UpdateResult(mean_metrics(history) | {"learning_rate": torch.tensor(learning_rate)})
