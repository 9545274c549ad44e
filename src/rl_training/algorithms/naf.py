"""NAF: Q-learning for continuous actions, with a Q that is a parabola in the action.

Gu et al. (2016), arXiv:1603.00748, algorithm 1 without imagination rollouts.

    Q(s, a) = V(s) - 1/2 (a - mu(s))^T P(s) (a - mu(s))

Its maximum over actions is V, at mu. There is no actor to train; the policy improves only because mu moves to where the
parabola fits the targets best.

Deviations: Gaussian noise by default (options: Ornstein-Uhlenbeck noise, and noise shaped by P, which is wide along
actions that hardly matter); uniform random actions during warm-up; no batch normalization; mu, P and V share all hidden
layers; mu passes through tanh; the logarithms on the diagonal of P's factor are clamped to +-10. The network has
`hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal`.

Options beyond the paper: `n_step` above 1 does not correct for the older policies of the steps in between; the weights
of prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.critics import td_errors
from rl_training.algorithms.common.exploration import make_action_noise, precision_noise
from rl_training.algorithms.common.learner import Action
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import ReplayLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.naf import NAFConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_naf import MLPNAFModel


def naf_target(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """y = r + d * V'(s').   [B]   V' comes from the target network; d is gamma^n, or 0 after termination."""
    return rewards + discounts * next_values


def naf_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """mean w (Q(s, a) - y)^2.   All [B]; w are importance weights when replay is prioritized, else 1."""
    errors = (q_values - target).square()
    loss = (errors if weights is None else weights * errors).mean()
    return loss, {"loss": loss.detach(), "q_mean": q_values.detach().mean(), "target_q_mean": target.mean()}


class NAF(ReplayLearner[NAFConfig]):
    """One network is both the actor and the critic."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPNAFModel = self.build(lambda: MLPNAFModel(spaces, config.model))
        self.target = TargetNetwork(self.model)
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate)
        shaped = self.config.noise_type == "precision"
        self.noise = None if shaped else make_action_noise(self.config.noise_type, self.config.exploration_noise)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        if not explore:
            return Action(self.model.act(obs))
        rng = self.streams["exploration"]
        if self.noise is not None:
            return Action(self.noise.apply(self.model.act(obs), rng, episode_starts))
        means, factors = self.model.act_with_factor(obs)
        return Action(np.clip(means + precision_noise(factors, self.config.exploration_noise, rng), -1.0, 1.0))

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target = naf_target(batch.rewards, batch.discounts, self.target.module.state_values(batch.next_obs))
        q_values = self.model.q_values(batch.obs, batch.actions)
        loss, metrics = naf_loss(q_values, target, batch.weights)
        metrics["grad_norm"] = self.optimizer.step(loss)
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values[None], target)
