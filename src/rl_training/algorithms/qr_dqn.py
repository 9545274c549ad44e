"""QR-DQN: Q-learning on whole distributions of returns as quantiles, which need no bounds of the returns.

Dabney, Rowland, Bellemare, Munos (2018), arXiv:1710.10044, algorithm 1, with kappa = 1 (QR-DQN-1). It has the options
of DQN, each off by default: double Q-learning (arXiv:1509.06461), dueling networks (arXiv:1511.06581), n-step returns
and prioritized replay, with the error of the mean as priority.

Deviations: gradients are clipped by their norm (`max_grad_norm=10`); target copies are counted in env steps, not in
updates, and the target may instead follow softly (`tau`). Epsilon falls over the whole run (`exploration={start: 1.0,
end: 0.05}`), in the paper to 0.01 over the first million frames. Learning starts after `learning_starts=100` random
steps (the paper has 50,000). The layers, which follow the encoder of images, are `hidden_sizes=[64, 64]` with
`activation=tanh` and `initialization=orthogonal`.

Deviations of the options: n-step returns do not correct for the older policies of the steps in between. On vectors the
dueling streams share no layer; on images their gradients into the encoder are not scaled by 1/sqrt(2). The weights of
prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.quantiles import quantile_loss_summed, quantile_midpoints, quantiles_of
from rl_training.algorithms.common.replay_learner import QLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.qr_dqn import QRDQNConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_quantiles import MLPQuantileNetwork


def qr_dqn_target(batch: Transitions, next_quantiles: Tensor, next_q: Tensor | None = None) -> Tensor:
    """y_j = r + d * theta'_j(s', a*) with a* = argmax_a mean_j theta'_j(s', a).   [B, quantiles]

    `next_quantiles` [B, A, quantiles] comes from the target network. `next_q` [B, A] says what to compare instead of
    its means: those of the online network, or -inf for actions that are not allowed. d is the batch's discount:
    gamma^n, or 0 after termination.
    """
    next_q = next_quantiles.mean(2) if next_q is None else next_q
    best = quantiles_of(next_quantiles, next_q.argmax(1))
    return batch.rewards[:, None] + batch.discounts[:, None] * best


def qr_dqn_loss(
    quantiles: Tensor, target: Tensor, taus: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """mean_b w * sum_i mean_j |tau_i - 1(u_ij < 0)| Huber(u_ij)  with u_ij = y_j - theta_i(s, a).

    `quantiles` of the actions taken, and `target` y, are [B, quantiles]; `taus` are [quantiles]; importance weights w
    are [B].
    """
    losses = quantile_loss_summed(quantiles, target, taus)
    loss = (losses if weights is None else weights * losses).mean()
    metrics = {"loss": loss.detach(), "q_mean": quantiles.detach().mean(), "target_q_mean": target.mean()}
    return loss, metrics


class QRDQN(QLearner[QRDQNConfig]):
    """Epsilon-greedy on the means; the quantiles are fitted to the distributions of a slower target network."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        self.taus = quantile_midpoints(settings.num_quantiles).to(self.device)
        self.model: MLPQuantileNetwork = self.build(
            lambda: MLPQuantileNetwork(
                spaces, config.model, num_quantiles=settings.num_quantiles, dueling=settings.dueling
            )
        )
        # Adam's epsilon from the paper.
        epsilon = 0.01 / settings.batch_size
        self.optimizer = self.add_optimizer(self.model, settings.learning_rate, epsilon=epsilon)
        self.target = TargetNetwork(self.model, copied=True)

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            next_quantiles = self.target.module.quantiles(batch.next_obs)
            if self.config.double:
                next_q = self.model.q_values(batch.next_obs)
            else:
                next_q = self.target.module.masked(next_quantiles.mean(2), batch.next_obs)
            target = qr_dqn_target(batch, next_quantiles, next_q)
        quantiles = quantiles_of(self.model.quantiles(batch.obs), batch.actions)
        loss, metrics = qr_dqn_loss(quantiles, target, self.taus, batch.weights)
        metrics["grad_norm"] = self.optimizer.step(loss)
        if self.config.tau is not None:
            self.target.follow(self.config.tau)
        return metrics, (quantiles.detach().mean(1) - target.mean(1)).abs()
