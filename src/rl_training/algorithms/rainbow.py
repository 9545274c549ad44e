"""Rainbow: six improvements of DQN together.

Hessel et al. (2018), arXiv:1710.02298: double Q-learning (arXiv:1509.06461), dueling networks (arXiv:1511.06581),
prioritized replay (arXiv:1511.05952) with KL divergences as priorities, n-step returns, distributions over atoms
(arXiv:1707.06887) and noisy layers (arXiv:1706.10295). Each part can be left out by its setting. Without `noisy`, the
layers are plain and `exploration` is the probability of random actions.

The online network that is fitted, the one that selects the next action, and the target network have independent noise
in every update (arXiv:1706.10295, eq. 15). Acting draws noise for every env and step; an evaluation has none.

Deviations: the noise of an update is the same for all rows, and each env has its own when acting. All linear layers
after the encoder are noisy; biases start with the same noise as weights, sigma_0 / sqrt(inputs). Gradients are clipped
by their norm (`max_grad_norm=10`); target copies are counted in env steps, not in updates, and the target may instead
follow softly (`tau`). N-step returns do not correct for the older policies of the steps in between. On vectors the
dueling streams share no layer; on images their gradients into the encoder are not scaled by 1/sqrt(2). The weights of
prioritized replay are relative to the largest one in the batch, with `importance_exponent={start: 0.4, end: 1.0}`.
Learning starts after `learning_starts=100` random steps (the paper has 20,000). The layers, which follow the encoder of
images, are `hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.c51 import c51_loss, greedy_distribution, logits_of
from rl_training.algorithms.common import projections
from rl_training.algorithms.common.learner import Action, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import QLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.rainbow import RainbowConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import expected_return
from rl_training.models.mlp_c51 import MLPC51Network
from rl_training.models.mlp_rainbow import MLPRainbowNetwork


def rainbow_loss(
    logits: Tensor, target: Tensor, support: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """mean w * -sum_i m_i log p_i(s, a): the cross entropy of C51, with the weights of prioritized replay.

    `logits` of the actions taken, and `target` m, the projected n-step distribution, are [B, atoms]; weights are [B].
    """
    return c51_loss(logits, target, support, weights)


class Rainbow(QLearner[RainbowConfig]):
    """Greedy on expected returns under noisy weights; fitted to the distributions of a slower target network."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        support = projections.make_support(settings.support_low, settings.support_high, settings.num_atoms)
        options: dict[str, Any] = {"support": support, "dueling": settings.dueling}
        self.model: Any = self.build(
            lambda: (
                MLPRainbowNetwork(spaces, config.model, initial_sigma=settings.initial_sigma, **options)
                if settings.noisy
                else MLPC51Network(spaces, config.model, **options)
            )
        )
        # Adam's epsilon from the paper is 1.5e-4 for batches of 32.
        epsilon = 0.0048 / settings.batch_size
        self.optimizer = self.add_optimizer(self.model, settings.learning_rate, epsilon=epsilon)
        self.target = TargetNetwork(self.model, copied=True)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        if not (explore and self.config.noisy):
            return super().act(obs, explore=explore)
        shape = (len(obs), self.model.noise_size)
        noise = self.streams["exploration"].standard_normal(shape, dtype=np.float32)
        return Action(self.model.greedy_actions(obs, noise))

    def update(self, batch: Transitions) -> UpdateResult:
        result = super().update(batch)
        if self.config.noisy:
            del result.metrics["exploration"]  # it is no probability here
        return result

    def step_inputs(self, batch: Transitions) -> tuple[Tensor, ...]:
        """Independent noise for the network that is fitted, the one that selects, and the target."""
        if not self.config.noisy:
            return ()
        return tuple(self.normal_noise("weight_noise", (3, self.model.noise_size)))

    def _gradient_step(self, batch: Transitions, *noise: Tensor) -> tuple[Metrics, Tensor]:
        fitted, selecting, aimed = ([part] for part in noise) if noise else ([], [], [])
        support, outcome = self.model.support, (batch.rewards, batch.discounts)
        with torch.no_grad():
            next_logits = self.target.module.distribution_logits(batch.next_obs, *aimed)
            if self.config.double:
                next_q = self.model.q_values(batch.next_obs, *selecting)
            else:
                next_q = self.target.module.masked(expected_return(next_logits, support), batch.next_obs)
            next_probabilities = greedy_distribution(next_logits, support, next_q)
            target = projections.categorical_projection(*outcome, next_probabilities, support)
        logits = logits_of(self.model.distribution_logits(batch.obs, *fitted), batch.actions)
        loss, metrics = rainbow_loss(logits, target, support, batch.weights)
        metrics["support_clipped"] = projections.clipped_share(*outcome, next_probabilities, support)
        metrics["grad_norm"] = self.optimizer.step(loss)
        if self.config.tau is not None:
            self.target.follow(self.config.tau)
        return metrics, projections.kl_divergence(target, logits)
