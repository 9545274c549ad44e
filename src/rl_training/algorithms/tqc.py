"""TQC: SAC with distributions of returns; the highest quantiles of all critics together are left out of the target.

Kuznetsov, Shvechikov, Grishin, Vetrov (2020), arXiv:2005.04269, algorithm 1, with kappa = 1 in the Huber quantile loss.
A critic that overestimates does so at its top; how much is dropped there sets the bias, finer than the minimum of two
critics does.

Deviations: `num_critics=2` (5 in the paper, at two and a half times the cost). The quantile loss is the mean over
critics, quantiles and targets, as in the authors' code. The temperature is learned through its logarithm, as in SAC.
The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal` (critics of three
layers of 512 ReLU units, an actor of two of 256). Warm-up is `learning_starts=100` uniform random steps (256).

Options beyond the paper: `n_step` above 1 leaves out the entropy of the steps in between and does not correct for
their older policies; priorities of prioritized replay are the errors of the mean, and its weights are relative to the
largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.quantiles import quantile_loss_mean, quantile_midpoints
from rl_training.algorithms.common.soft_actor_critic import SoftActorCritic
from rl_training.algorithms.common.state_exploration import StateNoiseLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.tqc import TQCConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_tqc import MLPTQCModel


def truncated_mixture(quantiles: Tensor, dropped: int) -> Tensor:
    """The quantiles of all critics as one sorted sample, without the `dropped` highest per critic.

    [critics, B, N] -> [B, critics * (N - dropped)]. It is the pool that is sorted and cut, not each critic on its own.
    """
    critics, rows, count = quantiles.shape
    pooled = quantiles.transpose(0, 1).reshape(rows, critics * count)
    return pooled.sort(1).values[:, : critics * (count - dropped)]


def tqc_target(batch: Transitions, next_atoms: Tensor, next_log_probs: Tensor, temperature: Tensor) -> Tensor:
    """y_j = r + d * (z_j(s', a') - alpha log pi(a'|s')),  a' ~ pi(.|s').   [B, M]

    `next_atoms` [B, M] are the truncated mixture of the target critics. d is gamma^n, or 0 after termination.
    """
    soft_atoms = next_atoms - (temperature * next_log_probs)[:, None]
    return batch.rewards[:, None] + batch.discounts[:, None] * soft_atoms


def tqc_loss(quantiles: Tensor, target: Tensor, taus: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """L = mean_nij |tau_i - 1(u < 0)| Huber(u),  u = y_j - theta_ni(s, a), over critics n, quantiles i and targets j.

    `quantiles` are [critics, B, N] at the fractions `taus` [N], `target` y is [B, M], weights are [B].
    An update with 2 x 25 quantiles takes 1.16 times as long as SAC's, compiled (docs/benchmarks/speed.md).
    """
    losses = quantile_loss_mean(quantiles, target, taus)
    loss = (losses if weights is None else weights * losses).mean()
    return loss, {
        "critic_loss": loss.detach(),
        "q_mean": quantiles.detach().mean(),
        "target_q_mean": target.mean(),
    }


def tqc_actor_loss(q_value: Tensor, log_probs: Tensor, temperature: Tensor) -> Tensor:
    """mean(alpha log pi(a|s) - Q(s, a)),  Q the mean over all critics and all quantiles, none dropped."""
    return (temperature * log_probs - q_value).mean()


class TQC(StateNoiseLearner[TQCConfig], SoftActorCritic[TQCConfig, MLPTQCModel]):
    """Critics predict quantiles and are fitted to the lower part of what their slow copies predict together."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.taus = quantile_midpoints(self.config.num_quantiles).to(self.device)

    def _gradient_step(self, batch: Transitions, next_noise: Tensor, noise: Tensor) -> tuple[Metrics, Tensor]:
        temperature = self.temperature.value()
        with torch.no_grad():
            next_actions, next_log_probs = self.model.sample(batch.next_obs, next_noise)
            next_quantiles = self.target.module.quantiles(batch.next_obs, next_actions)
            next_atoms = truncated_mixture(next_quantiles, self.config.dropped_quantiles)
            target = tqc_target(batch, next_atoms, next_log_probs, temperature)
        quantiles = self.model.quantiles(batch.obs, batch.actions)
        loss, metrics = tqc_loss(quantiles, target, self.taus, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)

        actions, log_probs = self.model.sample(batch.obs, noise)
        actor_loss = tqc_actor_loss(self.model.q_value(batch.obs, actions), log_probs, temperature)
        metrics |= self.soft_actor_step(actor_loss, log_probs, temperature)
        self.target.follow(self.config.tau)
        return metrics, (quantiles.detach().mean((0, 2)) - target.mean(1)).abs()

    def make_model(self) -> MLPTQCModel:
        settings = self.config
        return MLPTQCModel(
            self.spaces,
            self.model_config,
            num_critics=settings.num_critics,
            num_quantiles=settings.num_quantiles,
            state_noise=self.initial_noise,
        )
