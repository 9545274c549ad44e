"""SAC: soft actor-critic with automatic temperature.

Haarnoja et al. (2018), arXiv:1801.01290. Twin critics without a state-value network and the learned temperature are
those of arXiv:1812.05905, algorithm 1.

Deviations: the temperature is learned through its logarithm, with the loss -log(alpha) (log pi + H) of the authors'
code where eq. 18 has alpha (same sign and fixed point, independent of the size of alpha); uniform random actions during
warm-up. The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal` (256 and 256
ReLU units).

Options beyond the papers: `n_step` above 1 leaves out the entropy of the steps in between and does not correct for
their older policies; the weights of prioritized replay are relative to the largest one in the batch, with
`importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.soft_actor_critic import SoftActorCritic
from rl_training.algorithms.common.state_exploration import StateNoiseLearner
from rl_training.config.algorithms.sac import SACConfig
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic


def sac_target(batch: Transitions, next_q: Tensor, next_log_probs: Tensor, temperature: Tensor) -> Tensor:
    """y = r + d * (min_i Q'_i(s', a') - alpha log pi(a'|s')),  a' ~ pi(.|s')      (eq. 3, 5).   [B]

    `next_q` [critics, B] are the target critics' values of the CURRENT policy's action. d is gamma^n, or 0 after
    termination.
    """
    return batch.rewards + batch.discounts * (next_q.amin(0) - temperature * next_log_probs)


def sac_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critics' loss: sum_i mean w (Q_i(s, a) - y)^2      (eq. 5, times two).   q_values [2, B]."""
    return critic_loss(q_values, target, weights)


def sac_actor_loss(q_values: Tensor, log_probs: Tensor, temperature: Tensor) -> Tensor:
    """mean(alpha log pi(a|s) - min_i Q_i(s, a)),  a reparameterized      (eq. 7, 9)."""
    return (temperature * log_probs - q_values.amin(0)).mean()


class SAC(StateNoiseLearner[SACConfig], SoftActorCritic[SACConfig, MLPSquashedGaussianActorCritic]):
    """Maximum-entropy actor-critic: the actor earns a bonus for entropy, at a temperature that adapts."""

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
        metrics |= self.soft_actor_step(actor_loss, log_probs, temperature)
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)

    def make_model(self) -> MLPSquashedGaussianActorCritic:
        return MLPSquashedGaussianActorCritic(self.spaces, self.model_config, state_noise=self.initial_noise)
