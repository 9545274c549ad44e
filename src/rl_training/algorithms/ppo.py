"""PPO: proximal policy optimisation with the clipped surrogate.

Schulman, Wolski, Dhariwal, Radford, Klimov (2017), arXiv:1707.06347, algorithm 1.

Deviations from the paper, all common practice: advantages are normalised per minibatch; the value loss may be
clipped (off by default); an epoch loop may stop early when the policy has moved `target_kl` far; policy and value
are separate networks, so the value coefficient only scales the critic's gradient within the shared norm clip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.compile.compiled_step import Scalar
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import (
    PolicyBatch,
    ReturnNormalizer,
    learner_rewards,
    minibatches,
    normalize,
    policy_batch,
)
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.returns import explained_variance
from rl_training.algorithms.common.streams import Streams
from rl_training.config.ppo import PPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def ppo_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_range: Scalar) -> Tensor:
    """-mean min(r A, clip(r, 1 - eps, 1 + eps) A),  r = pi(a|s) / pi_old(a|s)          (eq. 7).  All [B]."""
    ratio = (log_probs - old_log_probs).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()


def ppo_value_loss(values: Tensor, returns: Tensor, old_values: Tensor, clip_range: float | None) -> Tensor:
    """1/2 mean (V - R)^2; with `clip_range` the larger of that and the error of V kept within +-clip of V_old."""
    errors = (values - returns).square()
    if clip_range is not None:
        clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
        errors = torch.max(errors, (clipped - returns).square())
    return 0.5 * errors.mean()


@torch.no_grad()
def ratio_metrics(log_probs: Tensor, old_log_probs: Tensor, clip_range: Scalar) -> Metrics:
    """How far the policy has moved, and how often the clip holds it.

    The KL estimate is mean((r - 1) - log r), which is never negative; the naive -log r can be.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    return {
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > clip_range).float().mean(),
    }


def ppo_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: PolicyBatch,
    config: PPOConfig,
    *,
    clip_range: Scalar,
    entropy_coef: Scalar,
) -> tuple[Tensor, Metrics]:
    """L = policy loss + c_v * value loss - c_e * entropy                                  (eq. 9)

    `log_probs`, `entropy`, `values` [B] are the current policy's on the batch.
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = ppo_policy_loss(log_probs, batch.log_probs, advantages, clip_range)
    value_loss = ppo_value_loss(values, batch.returns, batch.values, config.value_clip_range)
    mean_entropy = entropy.mean()
    loss = policy_loss + config.value_coef * value_loss - entropy_coef * mean_entropy
    metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}
    metrics = {name: value.detach() for name, value in metrics.items()}
    return loss, metrics | ratio_metrics(log_probs, batch.log_probs, clip_range)


class PPO(Learner):
    """Several epochs of minibatch steps on each rollout."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, PPOConfig)
        self.config = config.algo_kwargs
        self.model: MLPActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPActorCritic(spaces, self.model_config))
        )
        self.optimizer = Optimizer(
            self.model.parameters(), epsilon=self.config.adam_epsilon, max_grad_norm=self.config.max_grad_norm
        )
        self.return_normalizer = (
            ReturnNormalizer(self.config.gamma, self.num_envs) if self.config.normalize_rewards else None
        )
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.minibatch_size)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        return Action(*self.model.act(obs, self.streams["exploration"] if explore else None))

    def update(self, batch: Rollout) -> UpdateResult:
        rewards = learner_rewards(self, self.return_normalizer, batch)
        data = policy_batch(batch, rewards, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        learning_rate = self.scheduled(self.config.learning_rate)
        self.optimizer.set_learning_rate(learning_rate)
        clip_range = torch.tensor(self.scheduled(self.config.clip_range))
        entropy_coef = torch.tensor(self.scheduled(self.config.entropy_coef))
        history: list[Metrics] = []
        for minibatch in self._minibatches(data):
            metrics = self.gradient_step(minibatch, clip_range, entropy_coef)
            if metrics is None:
                break
            history.append(metrics)
        self.updates += 1
        self.observe(batch.obs, batch.valid)
        metrics = mean_metrics(history)
        metrics["explained_variance"] = explained_variance(data.values, data.returns)
        return UpdateResult(metrics | {"learning_rate": torch.tensor(learning_rate)})

    def _gradient_step(self, batch: PolicyBatch, clip_range: Tensor, entropy_coef: Tensor) -> Metrics | None:
        """One step, unless the policy has moved too far already."""
        outputs = self.model.evaluate_actions(batch.obs, batch.actions)
        loss, metrics = ppo_loss(*outputs, batch, self.config, clip_range=clip_range, entropy_coef=entropy_coef)
        # Reading the value waits for the computation, so only those who ask for it pay.
        if self.config.target_kl is not None and float(metrics["approx_kl"]) > self.config.target_kl:
            return None
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics

    def _minibatches(self, data: PolicyBatch) -> Iterator[PolicyBatch]:
        for _ in range(self.config.update_epochs):
            yield from minibatches(data, self.config.minibatch_size, self.streams["minibatches"])
