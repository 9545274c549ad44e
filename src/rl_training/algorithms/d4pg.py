"""D4PG: deterministic policy gradients with a distributional critic and n-step returns.

Barth-Maron et al. (2018), arXiv:1804.08617, algorithm 1, with the categorical critic of the paper. The paper's actors
are the envs of one process (`num_envs`). Prioritized replay is an option, with the critic's KL divergence as priority.

Deviations: targets follow softly (`tau=0.005`) after every update, where the paper copies them every 100 updates.
Uniform random actions during warm-up. The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal`. Prioritized replay corrects by `importance_exponent={start: 0.4, end: 1.0}`, with weights
relative to the largest one in the batch, where the paper weighs by 1/(R p) from the start. As in the paper, n-step
returns have no correction for rewards that an older policy earned.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.common import projections
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import NoisyActorCritic
from rl_training.config.algorithms.d4pg import D4PGConfig
from rl_training.data.transitions import Transitions
from rl_training.models.distributions import expected_return
from rl_training.models.mlp_d4pg import MLPD4PGModel


def d4pg_target(batch: Transitions, target_model: MLPD4PGModel, support: Tensor) -> tuple[Tensor, Tensor]:
    """The target distribution on the support [B, atoms], and the share of it that was clipped.

        m = Proj(r + d Z'(s', mu'(s')))

    Z' is the target critic's distribution. d is the batch's discount: gamma^n, or 0 after termination.
    """
    next_actions = target_model.actor(batch.next_obs)
    next_probabilities = target_model.distribution_logits(batch.next_obs, next_actions).softmax(1)
    outcome = (batch.rewards, batch.discounts, next_probabilities, support)
    return projections.categorical_projection(*outcome), projections.clipped_share(*outcome)


def d4pg_loss(logits: Tensor, target: Tensor, support: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critic's loss: mean w * -sum_i m_i log p_i(s, a).

    `logits` of the actions taken, and `target` m, the projected distribution, are [B, atoms]; w are importance weights
    [B], or 1.
    """
    loss = projections.cross_entropy(logits, target, weights)
    q_mean = expected_return(logits.detach(), support).mean()
    return loss, {"critic_loss": loss.detach(), "q_value_mean": q_mean, "target_q_mean": (target @ support).mean()}


def d4pg_actor_loss(model: MLPD4PGModel, obs: Tensor) -> Tensor:
    """-mean E[Z(s, mu(s))]: climb the expected return, not a logit. Only the actor's parameters move."""
    return -model.q_values(obs, model.actor(obs)).mean()


def d4pg_step(learner: NoisyActorCritic[Any, MLPD4PGModel], batch: Transitions) -> tuple[Metrics, Tensor]:
    """One gradient step of critic and actor, which the targets follow: metrics, and the divergence of each row."""
    support = learner.model.support
    with torch.no_grad():
        target, clipped = d4pg_target(batch, learner.target.module, support)
    logits = learner.model.distribution_logits(batch.obs, batch.actions)
    loss, metrics = d4pg_loss(logits, target, support, batch.weights)
    metrics["support_clipped"] = clipped
    metrics["critic_grad_norm"] = learner.critic_optimizer.step(loss)
    metrics |= learner.actor_step(d4pg_actor_loss(learner.model, batch.obs))
    learner.target.follow(learner.config.tau)
    return metrics, projections.kl_divergence(target, logits)


def d4pg_model(learner: NoisyActorCritic[Any, MLPD4PGModel]) -> MLPD4PGModel:
    """The networks, with the support of the settings."""
    settings = learner.config
    support = projections.make_support(settings.support_low, settings.support_high, settings.num_atoms)
    return MLPD4PGModel(learner.spaces, learner.model_config, support=support)


class D4PG(NoisyActorCritic[D4PGConfig, MLPD4PGModel]):
    """A tanh actor that climbs the mean of its critic's distribution; soft targets follow both."""

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        return d4pg_step(self, batch)

    def make_model(self) -> MLPD4PGModel:
        return d4pg_model(self)
