"""ACKTR: advantage actor-critic whose steps are natural gradients, by Kronecker factors of the Fisher matrix.

Wu, Mansimov, Liao, Grosse, Ba (2017), arXiv:1708.05144. The loss is that of A2C. Policy and value share one Fisher
matrix: that of a distribution with the policy's actions and a Gaussian around the value (section 3.1), estimated from
actions and values that the MODEL samples. A step is as long as the learning rate, or shorter if it would move that
distribution by more than `max_kl` (eq. 5). `algorithms/common/kfac.py` has the factors.

Deviations: one process steps all environments and learns. The bound uses the curvature of the factors without damping.
The log-std of a Gaussian policy is no layer: its Fisher matrix is known (2 I). Factors are a plain mean over the first
batches and decay afterwards (`statistics_decay=0.99`); their eigenvectors are renewed every `inverse_every=10` updates,
in the same process, and in each of the first 10. Momentum (`momentum=0.9`) averages steps, so it does not lengthen
them. `learning_rate=0.25` and `max_kl=0.001` are for Atari; `entropy_coef=0`, `value_coef=0.5`. Advantages may use GAE
(`gae_lambda=1` gives n-step returns). The value's Gaussian has a fixed variance, the inverse of `fisher_coef=1`. On
vectors, policy and value are separate networks; on images they share the encoder. There is no weight decay.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.algorithms.a2c import a2c_loss
from rl_training.algorithms.common.compile.compiled_step import Scalar
from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.kfac import KFACOptimizer
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.novelty import NoveltyLearner
from rl_training.algorithms.common.on_policy import PolicyBatch, policy_batch, rollout_metrics
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.acktr import ACKTRConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic

LOG_STD_FISHER = 2.0  # E[(d log N(a | mu, sigma) / d log sigma)^2], whatever the state


def acktr_loss(
    log_probs: Tensor, entropy: Tensor, values: Tensor, batch: PolicyBatch, config: ACKTRConfig, *, entropy_coef: Scalar
) -> tuple[Tensor, Metrics]:
    """A2C's loss: L = -mean log pi(a|s) A  +  c_v 1/2 mean (R - V(s))^2  -  c_e mean H(pi(.|s)).   All [B]"""
    return a2c_loss(log_probs, entropy, values, batch, config, entropy_coef=entropy_coef)


def sampled_loss(log_probs: Tensor, values: Tensor, noise: Tensor, fisher_coef: float) -> Tensor:
    """-sum log p(a, v | s) with a and v sampled from the model itself, up to a constant.   All [B]

    p is the policy times a Gaussian around V(s) of variance 1 / `fisher_coef`; `noise` is standard normal. It is a sum,
    because the Fisher matrix is a mean over products of the gradients of single rows.
    """
    sampled = values.detach() + noise / fisher_coef**0.5
    loss: Tensor = -log_probs.sum() + 0.5 * fisher_coef * (sampled - values).square().sum()
    return loss


class ACKTR(NoveltyLearner[ACKTRConfig]):
    """One natural-gradient step on each rollout."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model))
        log_std: nn.Parameter | None = self.model.log_std
        self.optimizer = KFACOptimizer(
            self.model,
            known={} if log_std is None else {log_std: LOG_STD_FISHER},
            damping=settings.damping,
            momentum=settings.momentum,
            statistics_decay=settings.statistics_decay,
            inverse_every=settings.inverse_every,
            max_grad_norm=settings.max_grad_norm,
        )
        self._scheduled_optimizers.append((self.optimizer, settings.learning_rate))

    def update(self, rollout: Rollout) -> UpdateResult:
        batch = policy_batch(rollout, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        novelty = self.seek_novelty(batch, rollout)
        self.set_learning_rates()
        self.optimizer.max_kl.fill_(self.scheduled(self.config.max_kl))
        metrics = self._gradient_step(batch)
        self.updates += 1
        metrics |= novelty | rollout_metrics(batch, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(some_rows(batch.obs), some_rows(batch.actions)))
        return UpdateResult(metrics)

    def _gradient_step(self, batch: PolicyBatch) -> Metrics:
        with self.optimizer.watching():
            parameters, values = self.model.policy_and_value(batch.obs)
        self.optimizer.observe(self._sampled_loss(parameters, values))
        distribution = self.model.distribution
        log_probs, entropy = distribution.log_prob(parameters, batch.actions), distribution.entropy(parameters)
        coefficient = self.scheduled(self.config.entropy_coef)
        loss, metrics = acktr_loss(log_probs, entropy, values, batch, self.config, entropy_coef=coefficient)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics | {"learning_rate": self.optimizer.rate, "predicted_kl": self.optimizer.predicted_kl}

    def _sampled_loss(self, parameters: Tensor, values: Tensor) -> Tensor:
        rng = self.streams["fisher"]
        actions, _ = self.model.distribution.sample(parameters.detach().cpu().numpy(), rng)
        noise = rng.standard_normal(len(values), dtype="float32")
        log_probs = self.model.distribution.log_prob(parameters, torch.from_numpy(actions).to(self.device))
        return sampled_loss(log_probs, values, torch.from_numpy(noise).to(self.device), self.config.fisher_coef)
