"""PPO: proximal policy optimization with the clipped surrogate.

Schulman, Wolski, Dhariwal, Radford, Klimov (2017), arXiv:1707.06347, algorithm 1.

Deviations from the paper, all common practice: advantages are normalized per minibatch; gradients are clipped by their
norm (`max_grad_norm=0.5`); the value loss may be clipped (off by default); an update may stop early when the policy has
moved by a KL divergence of `target_kl`; `entropy_coef=0` (the paper has 0.01 for Atari). On vectors, policy and value
are separate networks, so `value_coef=0.5` only scales the critic's gradient within the shared norm clip. On images they
share the encoder, and `value_coef` also weighs how much the value trains it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.compile.compiled_step import Scalar
from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.novelty import NoveltyLearner
from rl_training.algorithms.common.on_policy import (
    GradientSteps,
    PolicyBatch,
    actor_critic_loss,
    normalize,
    policy_batch,
    rollout_metrics,
)
from rl_training.algorithms.common.state_exploration import StateNoiseLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.ppo import ClippedConfig, PPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def ppo_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_range: Scalar) -> Tensor:
    """-mean min(r A, clip(r, 1 - eps, 1 + eps) A),  r = pi(a|s) / pi_old(a|s)          (eq. 7).  All [B]."""
    ratio = (log_probs - old_log_probs).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()


def ppo_value_loss(values: Tensor, returns: Tensor, old_values: Tensor, clip_range: float | None) -> Tensor:
    """1/2 mean (V - R)^2.  With `clip_range`, each row has the larger error of V and of V clipped to V_old +- clip."""
    errors = (values - returns).square()
    if clip_range is not None:
        clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
        errors = torch.max(errors, (clipped - returns).square())
    return 0.5 * errors.mean()


@torch.no_grad()
def ratio_metrics(log_probs: Tensor, old_log_probs: Tensor, clip_range: Scalar) -> Metrics:
    """How far the policy has moved, and the share of ratios outside the clip range.

        KL = mean (r - 1 - log r)

    This estimate is never negative; the mean of -log r can be.
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
    config: ClippedConfig,
    *,
    clip_range: Scalar,
    entropy_coef: Scalar,
) -> tuple[Tensor, Metrics]:
    """L = L_policy + c_v L_value - c_e mean H(pi(.|s))                                    (eq. 9)

    `log_probs`, `entropy` and `values`, each [B], are those of the current model on the batch.
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = ppo_policy_loss(log_probs, batch.log_probs, advantages, clip_range)
    value_loss = ppo_value_loss(values, batch.returns, batch.values, config.value_clip_range)
    loss, metrics = actor_critic_loss(
        policy_loss, value_loss, entropy, value_coef=config.value_coef, entropy_coef=entropy_coef
    )
    return loss, metrics | ratio_metrics(log_probs, batch.log_probs, clip_range)


class PPO(NoveltyLearner[PPOConfig], StateNoiseLearner[PPOConfig]):
    """Several epochs of gradient steps on minibatches of each rollout."""

    probe_every = 10

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        noise = self.initial_noise
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model, state_noise=noise))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, epsilon=self.config.adam_epsilon)
        self.gradient_steps = GradientSteps(self, self._gradient_step)

    def update(self, rollout: Rollout) -> UpdateResult:
        config, rng = self.config, self.streams["minibatches"]
        batch = policy_batch(rollout, self.model, gamma=config.gamma, gae_lambda=config.gae_lambda)
        novelty = self.seek_novelty(batch, rollout)
        self.set_learning_rates()
        clip_range, entropy_coef = self.scheduled_tensor(config.clip_range), self.scheduled_tensor(config.entropy_coef)
        metrics = self.gradient_steps(batch, rollout.valid.size, rng, clip_range, entropy_coef)
        self.updates += 1
        metrics |= novelty | rollout_metrics(batch, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(some_rows(batch.obs), some_rows(batch.actions)))
        metrics["learning_rate"] = self.scheduled_tensor(config.learning_rate)
        return UpdateResult(metrics)

    def _gradient_step(self, minibatch: PolicyBatch, clip_range: Tensor, entropy_coef: Tensor) -> Metrics | None:
        """One gradient step, or None if the policy has already moved too far."""
        outputs = self.model.evaluate_actions(minibatch.obs, minibatch.actions)
        loss, metrics = ppo_loss(*outputs, minibatch, self.config, clip_range=clip_range, entropy_coef=entropy_coef)
        # Reading a value waits for the device, so only runs with `target_kl` do it.
        if self.config.target_kl is not None and float(metrics["approx_kl"]) > self.config.target_kl:
            return None
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics
