"""SAC: soft actor-critic with automatic temperature.

Haarnoja et al. (2018), arXiv:1801.01290 and, for twin critics without a state-value network and the learned
temperature, arXiv:1812.05905, algorithm 1.

Deviations: the temperature is learned through its logarithm, with the loss -log(alpha) (log pi + H) that the
authors' code uses in place of eq. 18's alpha (same sign and fixed point, no dependence on alpha's own size).
`n_step` above 1, which the papers do not have, leaves out the entropy of the steps in between and does not correct
for their older policies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.sac import SACConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic


def sac_target(batch: Transitions, next_q: Tensor, next_log_probs: Tensor, temperature: Tensor) -> Tensor:
    """y = r + d * (min_i Q'_i(s', a') - alpha log pi(a'|s')),  a' ~ pi(.|s')      (eq. 3, 5).   [B]

    `next_q` [critics, B] is the target critics' at the CURRENT policy's action. d is gamma^n, or 0 after termination.
    """
    return batch.rewards + batch.discounts * (next_q.amin(0) - temperature * next_log_probs)


def sac_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critics': sum_i mean w (Q_i(s, a) - y)^2      (eq. 5, twice its scale).   q_values [2, B]."""
    return critic_loss(q_values, target, weights)


def sac_actor_loss(q_values: Tensor, log_probs: Tensor, temperature: Tensor) -> Tensor:
    """mean(alpha log pi(a|s) - min_i Q_i(s, a)),  a reparameterised      (eq. 7, 9)."""
    return (temperature * log_probs - q_values.amin(0)).mean()


def sac_temperature_loss(log_temperature: Tensor, log_probs: Tensor, target_entropy: float) -> Tensor:
    """-log(alpha) mean(log pi + H): alpha rises while the policy's entropy is below H."""
    return -log_temperature * (log_probs.detach() + target_entropy).mean()


class Temperature(nn.Module):
    def __init__(self, initial: float):
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))

    def value(self) -> Tensor:
        return self.log.detach().exp()


class SAC(Learner):
    """Maximum-entropy actor-critic: the actor is paid for being random, at a price that adjusts itself."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, SACConfig)
        self.config = config.algo_kwargs
        clip = self.config.max_grad_norm
        self.model: MLPSquashedGaussianActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPSquashedGaussianActorCritic(spaces, self.model_config))
        )
        self.target = TargetNetwork(self.model)
        self.actor_optimizer = Optimizer(self.model.policy_network.parameters(), max_grad_norm=clip)
        self.critic_optimizer = Optimizer(self.model.critics.parameters(), max_grad_norm=clip)
        automatic = self.config.temperature == "auto"
        initial = self.config.initial_temperature if automatic else float(self.config.temperature)
        self.temperature: Temperature = self.to_device(Temperature(initial))
        self.temperature_optimizer = Optimizer(self.temperature.parameters()) if automatic else None
        self.target_entropy = (
            -float(spaces.action_dim) if self.config.target_entropy == "auto" else self.config.target_entropy
        )
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.batch_size)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        return Action(self.model.act(obs, self.streams["exploration"] if explore else None))

    def update(self, batch: Transitions) -> UpdateResult:
        batch = batch.to(self.device)
        self.actor_optimizer.set_learning_rate(self.scheduled(self.config.actor_learning_rate))
        self.critic_optimizer.set_learning_rate(self.scheduled(self.config.critic_learning_rate))
        if self.temperature_optimizer is not None:
            self.temperature_optimizer.set_learning_rate(self.scheduled(self.config.temperature_learning_rate))
        next_noise, noise = self._noise(batch.actions), self._noise(batch.actions)
        metrics, errors = self.gradient_step(batch, next_noise, noise)
        self.updates += 1
        return UpdateResult(metrics, errors.cpu().numpy() if self.config.prioritized else None)

    def _gradient_step(self, batch: Transitions, next_noise: Tensor, noise: Tensor) -> tuple[Metrics, Tensor]:
        temperature = self.temperature.value()
        with torch.no_grad():
            next_actions, next_log_probs = self.model.sample(batch.next_obs, next_noise)
            next_q = self.target.module.q_values(batch.next_obs, next_actions)
            target = sac_target(batch, next_q, next_log_probs, temperature)
        q_values = self.model.q_values(batch.obs, batch.actions)
        loss, metrics = sac_loss(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)

        actions, log_probs = self.model.sample(batch.obs, noise)
        actor_loss = sac_actor_loss(self.model.q_values(batch.obs, actions), log_probs, temperature)
        metrics["actor_grad_norm"] = self.actor_optimizer.step(actor_loss)
        metrics |= {
            "actor_loss": actor_loss.detach(),
            "entropy": -log_probs.detach().mean(),
            "temperature": temperature.squeeze(),
        }
        if self.temperature_optimizer is not None:
            temperature_loss = sac_temperature_loss(self.temperature.log, log_probs, self.target_entropy).sum()
            self.temperature_optimizer.step(temperature_loss)
            metrics["temperature_loss"] = temperature_loss.detach()
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)

    def _noise(self, actions: Tensor) -> Tensor:
        noise = self.streams["policy_noise"].standard_normal(actions.shape, dtype=np.float32)
        return torch.from_numpy(noise).to(actions.device)
