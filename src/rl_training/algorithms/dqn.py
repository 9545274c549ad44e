"""DQN: deep Q-learning with replay and a target network.

Mnih et al. (2015), Nature 518. Options, each off by default: double Q-learning (arXiv:1509.06461), dueling networks
(arXiv:1511.06581), n-step returns and proportional prioritized replay (arXiv:1511.05952), which together are Rainbow
(arXiv:1710.02298) without its distributional and noisy parts; and Munchausen targets (arXiv:2007.14430).

Deviations: Adam instead of RMSprop; the error clip is the Huber loss, whose gradient in Q is the TD error clipped to
+-1, as the paper describes; gradients are also clipped by their norm (`max_grad_norm=10`); target copies are counted in
env steps, not in updates, and the target may instead follow softly (`tau`). Epsilon falls over the whole run
(`exploration={start: 1.0, end: 0.05}`), in the paper over the first million frames. Learning starts after
`learning_starts=100` random steps (the paper has 50,000). The layers, which follow the encoder of images, are
`hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal`.

Deviations of the options: n-step returns do not correct for the older policies of the steps in between. On vectors the
dueling streams share no layer; on images their gradients into the encoder are not scaled by 1/sqrt(2). The weights of
prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`. With
Munchausen targets, actions stay epsilon-greedy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.munchausen import munchausen_reward, soft_expectation
from rl_training.algorithms.common.replay_learner import QLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.dqn import DQNConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_q import MLPQNetwork


def dqn_target(batch: Transitions, next_q: Tensor, next_q_online: Tensor | None = None) -> Tensor:
    """y = r + d * Q'(s', argmax_a Q'(s', a)).  Double Q-learning takes the argmax of the online network.   [B]

    `next_q` [B, A] comes from the target network. d is the batch's discount: gamma^n, or 0 after termination.
    """
    if next_q_online is None:
        next_value = next_q.amax(1)
    else:
        next_value = next_q.gather(1, next_q_online.argmax(1, keepdim=True)).squeeze(1)
    return batch.rewards + batch.discounts * next_value


def munchausen_target(batch: Transitions, q: Tensor, next_q: Tensor, config: DQNConfig) -> Tensor:
    """y = r + alpha clip(T log pi(a|s), l0, 0) + d * sum_b pi(b|s') (Q'(s', b) - T log pi(b|s')).   [B]

    `q` and `next_q` [B, A] both come from the target network, in s and in s'.
    """
    rewards = batch.rewards + munchausen_reward(q, batch.actions, config)
    return rewards + batch.discounts * soft_expectation(next_q, next_q, config.munchausen_temperature)


def dqn_loss(q: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """mean w * Huber(Q(s, a) - y), with importance weights w when replay is prioritized. All [B]."""
    losses = F.smooth_l1_loss(q, target, reduction="none")
    loss = (losses if weights is None else weights * losses).mean()
    return loss, {"loss": loss.detach(), "q_mean": q.detach().mean(), "target_q_mean": target.mean()}


def taken(q_values: Tensor, actions: Tensor) -> Tensor:
    """Q of the actions taken, of the values of all [B, A].   [B]"""
    return q_values.gather(1, actions[:, None]).squeeze(1)


def bootstrap_target(learner: QLearner[Any], batch: Transitions) -> Tensor:
    """The target of a learner with the settings of DQN, by its networks of now.   [B]"""
    next_q = learner.target.module.q_values(batch.next_obs)
    return dqn_target(batch, next_q, learner.model.q_values(batch.next_obs) if learner.config.double else None)


def dqn_step(learner: QLearner[Any], batch: Transitions, target: Tensor) -> tuple[Metrics, Tensor]:
    """One gradient step towards a target [B], which a soft target network follows: metrics, and the error of rows."""
    q = taken(learner.model.q_values(batch.obs), batch.actions)
    loss, metrics = dqn_loss(q, target, batch.weights)
    metrics["grad_norm"] = learner.optimizer.step(loss)
    if learner.config.tau is not None:
        learner.target.follow(learner.config.tau)
    return metrics, (q.detach() - target).abs()


class DQN(QLearner[DQNConfig]):
    """Epsilon-greedy on an online network that is fitted to targets of a slower network."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPQNetwork = self.build(lambda: MLPQNetwork(spaces, config.model, dueling=self.config.dueling))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate)
        self.target = TargetNetwork(self.model, copied=True)

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            if self.config.munchausen:
                slow = self.target.module
                target = munchausen_target(batch, slow.q_values(batch.obs), slow.q_values(batch.next_obs), self.config)
            else:
                target = bootstrap_target(self, batch)
        return dqn_step(self, batch, target)
