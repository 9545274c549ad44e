"""TD3: DDPG with twin critics, a delayed actor and smoothed target actions.

Fujimoto, van Hoof, Meger (2018), arXiv:1802.09477, algorithm 1. Targets move together with the delayed actor, and
the actor climbs the first critic, as there.

Deviations: none in the update. The smoothed target action is clipped to the bounds, as in the authors' code; all
noise is on the [-1, 1] scale of actions. `n_step` above 1, which the paper does not have, does not correct for the
older policies of the steps in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.exploration import make_action_noise
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.td3 import TD3Config
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic


def td3_target(batch: Transitions, target_model: MLPDeterministicActorCritic, noise: Tensor) -> Tensor:
    """y = r + d * min_i Q'_i(s', clip(mu'(s') + e, -1, 1)),  e = `noise`, already clipped.   [B]

    d is the batch's discount: gamma^n, or 0 after termination.
    """
    next_actions = (target_model.actor(batch.next_obs) + noise).clamp(-1.0, 1.0)
    return batch.rewards + batch.discounts * target_model.q_values(batch.next_obs, next_actions).amin(0)


def td3_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critics': sum_i mean w (Q_i(s, a) - y)^2, both to the same target.   q_values [2, B]."""
    return critic_loss(q_values, target, weights)


def td3_actor_loss(model: MLPDeterministicActorCritic, obs: Tensor) -> Tensor:
    """-mean Q_1(s, mu(s))"""
    return -model.q_value(obs, model.actor(obs)).mean()


class TD3(Learner):
    """Critics learn at every update, the actor and all targets at every `policy_delay`-th."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, TD3Config)
        self.config = config.algo_kwargs
        self.model: MLPDeterministicActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPDeterministicActorCritic(spaces, self.model_config, num_critics=2))
        )
        self.target = TargetNetwork(self.model)
        self.actor_optimizer = Optimizer(
            self.model.policy_network.parameters(), max_grad_norm=self.config.max_grad_norm
        )
        self.critic_optimizer = Optimizer(self.model.critics.parameters(), max_grad_norm=self.config.max_grad_norm)
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
        self.updates += 1
        actor_too = self.updates % self.config.policy_delay == 0
        metrics, errors = self.gradient_step(batch, self._smoothing_noise(batch.actions), actor_too)
        return UpdateResult(metrics, errors.cpu().numpy() if self.config.prioritized else None)

    def _gradient_step(self, batch: Transitions, noise: Tensor, actor_too: bool) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target = td3_target(batch, self.target.module, noise)
        q_values = self.model.q_values(batch.obs, batch.actions)
        loss, metrics = td3_loss(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        if actor_too:
            actor_loss = td3_actor_loss(self.model, batch.obs)
            metrics["actor_grad_norm"] = self.actor_optimizer.step(actor_loss)
            metrics["actor_loss"] = actor_loss.detach()
            self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)

    def _smoothing_noise(self, actions: Tensor) -> Tensor:
        noise = self.streams["target_noise"].standard_normal(actions.shape, dtype=np.float32)
        limit = self.config.target_noise_clip
        return torch.from_numpy(np.clip(noise * self.config.target_noise, -limit, limit)).to(actions.device)
