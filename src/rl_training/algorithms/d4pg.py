"""D4PG: deterministic policy gradients with a distributional critic and n-step returns.

Barth-Maron et al. (2018), arXiv:1804.08617, algorithm 1, with the categorical critic of the paper. The actors are
the envs of one process (`num_envs`); prioritised replay is an option, by the KL divergence of the critic.

Deviations: targets follow softly (`tau`) after every update, where the paper copies them every 100; no correction
for n-step rewards that another policy earned, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.exploration import make_action_noise
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.projections import (
    categorical_projection,
    clipped_share,
    cross_entropy,
    kl_divergence,
    make_support,
    support_advice,
)
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.d4pg import D4PGConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import expected_return
from rl_training.models.mlp_d4pg import MLPD4PGModel


def d4pg_loss(logits: Tensor, target: Tensor, support: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critic's: mean w * -sum_i m_i log p_i(s, a).

    `logits` of the actions taken and `target` m, projected, are [B, atoms]; w are importance weights [B], or 1.
    """
    loss = cross_entropy(logits, target, weights)
    q_mean = expected_return(logits.detach(), support).mean()
    return loss, {"critic_loss": loss.detach(), "q_value_mean": q_mean, "target_q_mean": (target @ support).mean()}


def d4pg_actor_loss(model: MLPD4PGModel, obs: Tensor) -> Tensor:
    """-mean E[Z(s, mu(s))]: climb the expected return, not a logit. Only the actor's parameters are stepped on it."""
    return -model.q_values(obs, model.actor(obs)).mean()


class D4PG(Learner):
    """A tanh actor that climbs the mean of its critic's distribution, both followed by soft targets."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, D4PGConfig)
        self.config = config.algo_kwargs
        support = make_support(self.config.support_low, self.config.support_high, self.config.num_atoms)
        self.model: MLPD4PGModel = self.to_device(
            build_seeded(streams, lambda: MLPD4PGModel(spaces, self.model_config, support=support))
        )
        self.target = TargetNetwork(self.model)
        self.actor_optimizer = Optimizer(
            self.model.policy_network.parameters(), max_grad_norm=self.config.max_grad_norm
        )
        self.critic_optimizer = Optimizer(self.model.critic.parameters(), max_grad_norm=self.config.max_grad_norm)
        self.noise = make_action_noise(self.config.noise_type, self.config.exploration_noise)
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.batch_size)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        actions = self.model.act(obs)
        if explore:
            actions = self.noise.apply(actions, self.streams["exploration"], episode_starts)
        return Action(actions)

    def update(self, batch: Transitions) -> UpdateResult:
        batch = batch.to(self.device)
        self.actor_optimizer.set_learning_rate(self.scheduled(self.config.actor_learning_rate))
        self.critic_optimizer.set_learning_rate(self.scheduled(self.config.critic_learning_rate))
        metrics, divergences = self.gradient_step(batch)
        self.updates += 1
        return UpdateResult(metrics, divergences.cpu().numpy() if self.config.prioritized else None)

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        support, outcome = self.model.support, (batch.rewards, batch.discounts)
        with torch.no_grad():
            next_actions = self.target.module.actor(batch.next_obs)
            next_probabilities = self.target.module.distribution_logits(batch.next_obs, next_actions).softmax(1)
            target = categorical_projection(*outcome, next_probabilities, support)
        logits = self.model.distribution_logits(batch.obs, batch.actions)
        loss, metrics = d4pg_loss(logits, target, support, batch.weights)
        metrics["support_clipped"] = clipped_share(*outcome, next_probabilities, support)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        actor_loss = d4pg_actor_loss(self.model, batch.obs)
        metrics["actor_grad_norm"] = self.actor_optimizer.step(actor_loss)
        metrics["actor_loss"] = actor_loss.detach()
        self.target.follow(self.config.tau)
        return metrics, kl_divergence(target, logits)

    def advice(self, metrics: Mapping[str, Any]) -> str | None:
        return support_advice(metrics, self.config.support_low, self.config.support_high)
