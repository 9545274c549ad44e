"""TRPO: the largest policy step that improves the surrogate within a trust region of KL divergence.

Schulman, Levine, Moritz, Jordan, Abbeel (2015), arXiv:1502.05477, section 6 and appendix C, with the advantages of
arXiv:1506.02438.

Deviations: the Fisher matrix is damped where it is inverted, not where the step is scaled to the trust region; its
products use all rows of the rollout (the paper takes a subsample); the surrogate uses the actions that the old policy
took (the paper's single path); advantages are normalized; the surrogate may have an entropy bonus (`entropy_coef=0`);
`max_kl` may follow a schedule; Adam fits the critic on minibatches, where `value_coef` only scales the gradient before
the clip (`max_grad_norm=null`: none). The critic shares no layer with the policy, on images too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.natural_gradient import (
    conjugate_gradient,
    fisher_product,
    flat_gradient,
    twice_differentiable,
)
from rl_training.algorithms.common.novelty import NoveltyLearner
from rl_training.algorithms.common.on_policy import PolicyBatch, minibatches, normalize, policy_batch, rollout_metrics
from rl_training.algorithms.common.optimizer import flatten_parameters, trained
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.ppo import ppo_value_loss
from rl_training.config.algorithms.trpo import TRPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def trpo_loss(
    log_probs: Tensor, entropy: Tensor, batch: PolicyBatch, config: TRPOConfig, *, entropy_coef: float
) -> tuple[Tensor, Metrics]:
    """L = -mean r A - c_e mean H,  r = pi(a|s) / pi_old(a|s)               (eq. 14, to be minimized).  All [B]."""
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = -((log_probs - batch.log_probs).exp() * advantages).mean()
    mean_entropy = entropy.mean()
    loss = policy_loss - entropy_coef * mean_entropy
    metrics = {"loss": loss, "policy_loss": policy_loss, "entropy": mean_entropy}
    return loss, {name: value.detach() for name, value in metrics.items()}


class TRPO(NoveltyLearner[TRPOConfig]):
    """One natural-gradient step of the policy on each rollout, then a few epochs of the critic."""

    probe_every = 10

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        # Fitting the critic must not move the policy: the two share no parameters.
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model, share_encoder=False))
        named = self.model.named_parameters()
        self.policy_parameters = trained(p for name, p in named if not name.startswith("critic."))
        self.policy_vector = flatten_parameters(self.policy_parameters)
        self.critic_optimizer = self.add_optimizer(self.model.critic, self.config.learning_rate)

    def update(self, rollout: Rollout) -> UpdateResult:
        batch = policy_batch(rollout, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        novelty = self.seek_novelty(batch, rollout)
        metrics = self.policy_step(batch) | self.fit_critic(batch)
        self.updates += 1
        metrics |= novelty | rollout_metrics(batch, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(some_rows(batch.obs), some_rows(batch.actions)))
        return UpdateResult(metrics)

    def policy_step(self, batch: PolicyBatch) -> Metrics:
        """Move the policy along the natural gradient as far as KL and surrogate allow, or leave it unchanged."""
        max_kl = self.scheduled(self.config.max_kl)
        old = self.model.policy(batch.obs)
        fixed = old.detach()
        loss, metrics = self._surrogate(old, batch)
        gradient = -flat_gradient(loss, self.policy_parameters)
        # A second forward pass: taking the gradient has freed the graph of the first.
        with twice_differentiable():
            kl = self.model.distribution.kl(fixed, self.model.policy(batch.obs)).mean()
        fisher = fisher_product(kl, self.policy_parameters)
        direction = conjugate_gradient(
            lambda vector: fisher(vector) + self.config.damping * vector,
            gradient,
            self.config.conjugate_gradient_steps,
        )
        # KL is close to 1/2 s^T F s. Without curvature the step is not finite, and the line search refuses it.
        full_step = direction * (2 * max_kl / (direction @ fisher(direction))).sqrt()
        return self._line_search(full_step, fixed, batch, metrics, max_kl)

    @torch.no_grad()
    def _line_search(
        self, full_step: Tensor, fixed: Tensor, batch: PolicyBatch, metrics: Metrics, max_kl: float
    ) -> Metrics:
        """Take the longest of the shrinking steps that lowers the loss and keeps KL within `max_kl`.

        Reading both numbers waits for the device, which a search cannot avoid.
        """
        before = self.policy_vector.clone()
        for tries in range(1, self.config.line_search_steps + 1):
            self.policy_vector.copy_(before + full_step * self.config.line_search_decay ** (tries - 1))
            new = self.model.policy(batch.obs)
            kl = self.model.distribution.kl(fixed, new).mean()
            loss, new_metrics = self._surrogate(new, batch)
            improvement = metrics["loss"] - loss
            if float(improvement) > 0 and float(kl) <= max_kl:
                metrics = new_metrics | {"approx_kl": kl, "surrogate_improvement": improvement}
                break
        else:
            self.policy_vector.copy_(before)
        success = torch.tensor(float("approx_kl" in metrics))
        return metrics | {"line_search_success": success, "line_search_steps": torch.tensor(float(tries))}

    def _surrogate(self, parameters: Tensor, batch: PolicyBatch) -> tuple[Tensor, Metrics]:
        distribution = self.model.distribution
        log_probs, entropy = distribution.log_prob(parameters, batch.actions), distribution.entropy(parameters)
        coefficient = self.scheduled(self.config.entropy_coef)
        return trpo_loss(log_probs, entropy, batch, self.config, entropy_coef=coefficient)

    def fit_critic(self, batch: PolicyBatch) -> Metrics:
        """Fit the critic to the returns; the policy does not move."""
        config, rng = self.config, self.streams["minibatches"]
        self.set_learning_rates()
        history: list[Metrics] = []
        for minibatch in minibatches(batch, config.minibatch_size, rng, config.update_epochs):
            values = self.model.value(minibatch.obs)
            loss = ppo_value_loss(values, minibatch.returns, minibatch.values, None)
            norm = self.critic_optimizer.step(config.value_coef * loss)
            history.append({"value_loss": loss.detach(), "critic_grad_norm": norm})
        return mean_metrics(history) | {"learning_rate": self.scheduled_tensor(config.learning_rate)}
