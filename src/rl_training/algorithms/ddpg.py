"""DDPG: deterministic policy gradients with replay and slowly moving targets.

Lillicrap et al. (2015), arXiv:1509.02971, algorithm 1.

Deviations: Gaussian noise by default (Ornstein-Uhlenbeck as an option), with `exploration_noise=0.1` (the paper has
0.2); uniform random actions during warm-up; no batch normalization and no weight decay; the action enters the critic at
its first layer; the last layers do not start with weights within 3e-3; `tau=0.005` (0.001); `actor_learning_rate=0.001`
(0.0001); `batch_size=256` (64). The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal` (400 and 300 ReLU units).

Options beyond the paper: `n_step` above 1 does not correct for the older policies of the steps in between; the weights
of prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import NoisyActorCritic
from rl_training.config.algorithms.ddpg import DDPGConfig
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic


def ddpg_target(batch: Transitions, target_model: MLPDeterministicActorCritic) -> Tensor:
    """y = r + d * Q'(s', mu'(s')).   [B]   d is the batch's discount: gamma^n, or 0 after termination."""
    next_value = target_model.q_value(batch.next_obs, target_model.actor(batch.next_obs))
    return batch.rewards + batch.discounts * next_value


def ddpg_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critic's loss: mean w (Q(s, a) - y)^2.   q_values [1, B], target and weights [B]."""
    return critic_loss(q_values, target, weights)


def ddpg_actor_loss(model: MLPDeterministicActorCritic, obs: Tensor) -> Tensor:
    """-mean Q(s, mu(s)): climb the critic. Only the actor's parameters move."""
    return -model.q_value(obs, model.actor(obs)).mean()


class DDPG(NoisyActorCritic[DDPGConfig, MLPDeterministicActorCritic]):
    """A tanh actor that climbs its critic; soft targets follow both."""

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target = ddpg_target(batch, self.target.module)
        q_values = self.model.q_values(batch.obs, batch.actions)
        loss, metrics = ddpg_loss(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        metrics |= self.actor_step(ddpg_actor_loss(self.model, batch.obs))
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)

    def make_model(self) -> MLPDeterministicActorCritic:
        return MLPDeterministicActorCritic(self.spaces, self.model_config, num_critics=1)
