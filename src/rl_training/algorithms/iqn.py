"""IQN: Q-learning on whole distributions of returns; the network estimates any quantile, drawn at random.

Dabney, Ostrovski, Silver, Munos (2018), arXiv:1806.06923, algorithm 1, with kappa = 1. It has the options of DQN, each
off by default: double Q-learning (arXiv:1509.06461), dueling networks (arXiv:1511.06581), n-step returns, prioritized
replay, with the error of the mean as priority, and Munchausen targets (arXiv:2007.14430). `risk_level` below 1 chooses
actions by the worst share of their returns (CVaR), here and in the target, as in section 3.

Deviations: actions are chosen by the mean over fixed fractions, the midpoints of K equal parts, not over K that are
drawn; in the target they are drawn, apart from those of the quantiles. The cosines start at cos(0) = 1. Gradients are
clipped by their norm (`max_grad_norm=10`); target copies are counted in env steps, not in updates, and the target may
instead follow softly (`tau`). Epsilon falls over the whole run (`exploration={start: 1.0, end: 0.05}`), in the paper to
0.01 over the first million frames. Learning starts after `learning_starts=100` random steps (the paper has 50,000). The
layers, which follow the encoder of images, are `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal`; for vectors, the first of them is multiplied with the fractions.

Deviations of the options: n-step returns do not correct for the older policies of the steps in between. The gradients
of the dueling streams are not scaled by 1/sqrt(2). The weights of prioritized replay are relative to the largest one in
the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.munchausen import munchausen_reward, soft_expectation
from rl_training.algorithms.common.quantiles import quantile_loss_summed, quantile_midpoints, quantiles_of
from rl_training.algorithms.common.replay_learner import QLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.iqn import IQNConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_iqn import MLPIQNNetwork


def iqn_target(batch: Transitions, next_quantiles: Tensor, next_q: Tensor) -> Tensor:
    """y_j = r + d * Z'_tau_j(s', a*) with a* = argmax_a Q(s', a).   [B, N']

    `next_quantiles` [B, A, N'] comes from the target network, and `next_q` [B, A] from fractions of their own. d is the
    batch's discount: gamma^n, or 0 after termination.
    """
    return batch.rewards[:, None] + batch.discounts[:, None] * quantiles_of(next_quantiles, next_q.argmax(1))


def munchausen_iqn_target(
    batch: Transitions, next_quantiles: Tensor, next_q: Tensor, q: Tensor, config: IQNConfig
) -> Tensor:
    """y_j = r + alpha clip(T log pi(a|s)) + d * sum_b pi(b|s') (Z'_tau_j(s', b) - T log pi(b|s')).   [B, N']

    `q` [B, A] and `next_q` [B, A] come from the target network, in s and in s'.
    """
    rewards = batch.rewards + munchausen_reward(q, batch.actions, config)
    after = soft_expectation(next_quantiles, next_q, config.munchausen_temperature)
    return rewards[:, None] + batch.discounts[:, None] * after


def iqn_loss(quantiles: Tensor, target: Tensor, taus: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """mean_b w * sum_i mean_j |tau_i - 1(u_ij < 0)| Huber(u_ij)  with u_ij = y_j - Z_tau_i(s, a).

    `quantiles` of the actions taken at their fractions `taus` are [B, N], `target` y is [B, N'], weights w are [B].
    """
    losses = quantile_loss_summed(quantiles, target, taus)
    loss = (losses if weights is None else weights * losses).mean()
    return loss, {"loss": loss.detach(), "q_mean": quantiles.detach().mean(), "target_q_mean": target.mean()}


class IQN(QLearner[IQNConfig]):
    """Epsilon-greedy on means over fractions; quantiles at random fractions are fitted to a slower target network."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        acting_taus = settings.risk_level * quantile_midpoints(settings.num_acting_taus)
        self.model: MLPIQNNetwork = self.build(
            lambda: MLPIQNNetwork(
                spaces,
                config.model,
                acting_taus=acting_taus,
                num_cosines=settings.num_cosines,
                dueling=settings.dueling,
            )
        )
        # Adam's epsilon from the paper.
        epsilon = 0.01 / settings.batch_size
        self.optimizer = self.add_optimizer(self.model, settings.learning_rate, epsilon=epsilon)
        self.target = TargetNetwork(self.model, copied=True)

    def step_inputs(self, batch: Transitions) -> tuple[Tensor, ...]:
        """Fractions of each row: those that are fitted, those of the target, and those that choose the next action."""
        config, rows = self.config, len(batch)
        counts = config.num_taus, config.num_target_taus, config.num_acting_taus
        drawn = self.streams["taus"].random((rows, sum(counts)), dtype=np.float32)
        taus, target_taus, choosing_taus = torch.from_numpy(drawn).to(self.device).split(counts, 1)
        return taus, target_taus, config.risk_level * choosing_taus

    def _gradient_step(
        self, batch: Transitions, taus: Tensor, target_taus: Tensor, choosing_taus: Tensor
    ) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target = self._target(batch, target_taus, choosing_taus)
        quantiles = quantiles_of(self.model.quantiles(batch.obs, taus), batch.actions)
        loss, metrics = iqn_loss(quantiles, target, taus, batch.weights)
        metrics["grad_norm"] = self.optimizer.step(loss)
        if self.config.tau is not None:
            self.target.follow(self.config.tau)
        return metrics, (quantiles.detach().mean(1) - target.mean(1)).abs()

    def _target(self, batch: Transitions, target_taus: Tensor, choosing_taus: Tensor) -> Tensor:
        target, next_obs = self.target.module, batch.next_obs
        next_quantiles = target.quantiles(next_obs, target_taus)
        chooser = self.model if self.config.double else target
        next_q = chooser.masked(chooser.quantiles(next_obs, choosing_taus).mean(2), next_obs)
        if not self.config.munchausen:
            return iqn_target(batch, next_quantiles, next_q)
        q = target.masked(target.quantiles(batch.obs, choosing_taus).mean(2), batch.obs)
        return munchausen_iqn_target(batch, next_quantiles, next_q, q, self.config)
