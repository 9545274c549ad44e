"""DDPG: deterministic policy gradients with replay and slowly moving targets.

Lillicrap et al. (2015), arXiv:1509.02971, algorithm 1.

Deviations: Gaussian noise by default (Ornstein-Uhlenbeck as an option); uniform random actions during warm-up;
no batch normalisation and no weight decay; the action enters the critic at its first layer. `n_step` above
1, which the paper does not have, does not correct for the older policies of the steps in between.
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
from rl_training.config.ddpg import DDPGConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic


def ddpg_target(batch: Transitions, target_model: MLPDeterministicActorCritic) -> Tensor:
    """y = r + d * Q'(s', mu'(s')).   [B]   d is the batch's discount: gamma^n, or 0 after termination."""
    next_value = target_model.q_value(batch.next_obs, target_model.actor(batch.next_obs))
    return batch.rewards + batch.discounts * next_value


def ddpg_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critic's: mean w (Q(s, a) - y)^2.   q_values [1, B], target and weights [B]."""
    return critic_loss(q_values, target, weights)


def ddpg_actor_loss(model: MLPDeterministicActorCritic, obs: Tensor) -> Tensor:
    """-mean Q(s, mu(s)): climb the critic. Only the actor's parameters are stepped on it."""
    return -model.q_value(obs, model.actor(obs)).mean()


class DDPG(Learner):
    """A tanh actor that climbs its critic, both followed by soft targets."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, DDPGConfig)
        self.config = config.algo_kwargs
        self.model: MLPDeterministicActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPDeterministicActorCritic(spaces, self.model_config, num_critics=1))
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
        metrics, errors = self.gradient_step(batch)
        self.updates += 1
        return UpdateResult(metrics, errors.cpu().numpy() if self.config.prioritized else None)

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target = ddpg_target(batch, self.target.module)
        q_values = self.model.q_values(batch.obs, batch.actions)
        loss, metrics = ddpg_loss(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        actor_loss = ddpg_actor_loss(self.model, batch.obs)
        metrics["actor_grad_norm"] = self.actor_optimizer.step(actor_loss)
        metrics["actor_loss"] = actor_loss.detach()
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)
