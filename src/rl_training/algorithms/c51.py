"""C51: Q-learning on whole distributions of returns over fixed atoms.

Bellemare, Dabney, Munos (2017), arXiv:1707.06887, algorithm 1. It has the options of DQN, each off by default: double
Q-learning (arXiv:1509.06461), dueling networks (arXiv:1511.06581), n-step returns and prioritized replay, with KL
divergences as priorities. Together they are Rainbow (arXiv:1710.02298) without its noisy layers.

Deviations: gradients are clipped by their norm (`max_grad_norm=10`); target copies are counted in env steps, not in
updates, and the target may instead follow softly (`tau`). Epsilon falls over the whole run (`exploration={start: 1.0,
end: 0.05}`), in DQN's paper over the first million frames. Learning starts after `learning_starts=100` random steps
(the paper has 50,000). The layers, which follow the encoder of images, are `hidden_sizes=[64, 64]` with
`activation=tanh` and `initialization=orthogonal`.

Deviations of the options: n-step returns do not correct for the older policies of the steps in between. On vectors the
dueling streams share no layer; on images their gradients into the encoder are not scaled by 1/sqrt(2). The weights of
prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common import projections
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import QLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.c51 import C51Config
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import expected_return
from rl_training.models.mlp_c51 import MLPC51Network


def greedy_distribution(next_logits: Tensor, support: Tensor, next_q: Tensor | None = None) -> Tensor:
    """p'(s', a*) with a* = argmax_a E[Z'(s', a)].  Double Q-learning takes the argmax of the online network.

    `next_logits` [B, A, atoms] comes from the target network. `next_q` [B, A] says what to compare instead of E[Z']:
    that of the online network, or -inf for actions that are not allowed. The result is [B, atoms].
    """
    next_q = expected_return(next_logits, support) if next_q is None else next_q
    return logits_of(next_logits, next_q.argmax(1)).softmax(1)


def logits_of(logits: Tensor, actions: Tensor) -> Tensor:
    """The logits of one action per row: [B, A, atoms], [B] -> [B, atoms]."""
    return logits.gather(1, actions[:, None, None].expand(-1, 1, logits.shape[2])).squeeze(1)


def c51_loss(logits: Tensor, target: Tensor, support: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """mean w * -sum_i m_i log p_i(s, a), with importance weights w when replay is prioritized.

    `logits` of the actions taken, and `target` m, the projected distribution, are [B, atoms]; weights are [B].
    """
    loss = projections.cross_entropy(logits, target, weights)
    q_mean = expected_return(logits.detach(), support).mean()
    return loss, {"loss": loss.detach(), "q_mean": q_mean, "target_q_mean": (target @ support).mean()}


class C51(QLearner[C51Config]):
    """Epsilon-greedy on expected returns; the distributions are fitted to those of a slower target network."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        support = projections.make_support(settings.support_low, settings.support_high, settings.num_atoms)
        self.model: MLPC51Network = self.build(
            lambda: MLPC51Network(spaces, config.model, support=support, dueling=settings.dueling)
        )
        # Adam's epsilon from the paper: cross entropy has small gradients, and a smaller epsilon amplifies their noise.
        epsilon = 0.01 / settings.batch_size
        self.optimizer = self.add_optimizer(self.model, settings.learning_rate, epsilon=epsilon)
        self.target = TargetNetwork(self.model, copied=True)

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        support, outcome = self.model.support, (batch.rewards, batch.discounts)
        with torch.no_grad():
            next_logits = self.target.module.distribution_logits(batch.next_obs)
            if self.config.double:
                next_q = self.model.q_values(batch.next_obs)
            else:
                next_q = self.target.module.masked(expected_return(next_logits, support), batch.next_obs)
            next_probabilities = greedy_distribution(next_logits, support, next_q)
            target = projections.categorical_projection(*outcome, next_probabilities, support)
        logits = logits_of(self.model.distribution_logits(batch.obs), batch.actions)
        loss, metrics = c51_loss(logits, target, support, batch.weights)
        metrics["support_clipped"] = projections.clipped_share(*outcome, next_probabilities, support)
        metrics["grad_norm"] = self.optimizer.step(loss)
        if self.config.tau is not None:
            self.target.follow(self.config.tau)
        return metrics, projections.kl_divergence(target, logits)
