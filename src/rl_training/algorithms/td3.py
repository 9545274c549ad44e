"""TD3: DDPG with twin critics, a delayed actor and smoothed target actions.

Fujimoto, van Hoof, Meger (2018), arXiv:1802.09477, algorithm 1. As in the paper, targets move together with the
delayed actor, and the actor climbs the first critic.

Deviations: none in the update. The smoothed target action is clipped to the bounds, as in the authors' code; all noise
is on the [-1, 1] scale of actions. Warm-up with uniform random actions takes `learning_starts=100` steps (the paper has
1,000 or more). The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal` (400
and 300 ReLU units).

Options beyond the paper: `n_step` above 1 does not correct for the older policies of the steps in between; the weights
of prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import NoisyActorCritic
from rl_training.config.algorithms.td3 import TD3Config
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic

TD3Learner = NoisyActorCritic[Any, MLPDeterministicActorCritic]  # TD3, or TD3 with Ape-X


def td3_target(batch: Transitions, target_model: MLPDeterministicActorCritic, noise: Tensor) -> Tensor:
    """y = r + d * min_i Q'_i(s', clip(mu'(s') + e, -1, 1)),  e = `noise`, already clipped.   [B]

    d is the batch's discount: gamma^n, or 0 after termination.
    """
    next_actions = (target_model.actor(batch.next_obs) + noise).clamp(-1.0, 1.0)
    return batch.rewards + batch.discounts * target_model.q_values(batch.next_obs, next_actions).amin(0)


def td3_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critics' loss: sum_i mean w (Q_i(s, a) - y)^2, with one target for both.   q_values [2, B]."""
    return critic_loss(q_values, target, weights)


def td3_actor_loss(model: MLPDeterministicActorCritic, obs: Tensor) -> Tensor:
    """-mean Q_1(s, mu(s)): climb the first critic."""
    return -model.q_value(obs, model.actor(obs)).mean()


def td3_inputs(learner: TD3Learner, batch: Transitions) -> tuple[Tensor, bool]:
    """The noise of the target actions, and whether the actor learns in this update."""
    settings = learner.config
    noise = learner.streams["target_noise"].standard_normal(batch.actions.shape, dtype=np.float32)
    noise = np.clip(noise * settings.target_noise, -settings.target_noise_clip, settings.target_noise_clip)
    actor_too = (learner.updates + 1) % settings.policy_delay == 0
    return torch.from_numpy(noise).to(learner.device), actor_too


def td3_step(learner: TD3Learner, batch: Transitions, noise: Tensor, actor_too: bool) -> tuple[Metrics, Tensor]:
    """One gradient step of the critics, with `actor_too` also of the actor and the targets: metrics, and row errors."""
    with torch.no_grad():
        target = td3_target(batch, learner.target.module, noise)
    q_values = learner.model.q_values(batch.obs, batch.actions)
    loss, metrics = td3_loss(q_values, target, batch.weights)
    metrics["critic_grad_norm"] = learner.critic_optimizer.step(loss)
    if actor_too:
        metrics |= learner.actor_step(td3_actor_loss(learner.model, batch.obs))
        learner.target.follow(learner.config.tau)
    return metrics, td_errors(q_values, target)


def td3_model(learner: TD3Learner) -> MLPDeterministicActorCritic:
    return MLPDeterministicActorCritic(learner.spaces, learner.model_config, num_critics=2)


class TD3(NoisyActorCritic[TD3Config, MLPDeterministicActorCritic]):
    """Critics learn in every update, the actor and all targets in every `policy_delay`-th."""

    def _gradient_step(self, batch: Transitions, noise: Tensor, actor_too: bool) -> tuple[Metrics, Tensor]:
        return td3_step(self, batch, noise, actor_too)

    def step_inputs(self, batch: Transitions) -> tuple[Tensor, bool]:
        return td3_inputs(self, batch)

    def make_model(self) -> MLPDeterministicActorCritic:
        return td3_model(self)
