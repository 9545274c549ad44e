"""Ape-X with TD3: many actors with different noise fill one prioritized replay, from which one TD3 learner learns.

Fujimoto, van Hoof, Meger (2018), arXiv:1802.09477, on the actors of Horgan et al. (2018), arXiv:1803.00933. Actor i of
N adds noise of scale `exploration_noise` * 0.4 ** (7 i / (N - 1)), and says with its own networks how surprising its
transitions are. With one actor in lockstep the run is TD3's, bit for bit.

Deviations from the papers: those actors have DDPG as their learner, and all the same noise; an `exploration_ladder` of
false gives that. An actor computes priorities without the noise on target actions. Importance weights are relative to
the largest one in the batch, with `importance_exponent=0.4`. The rest is as in the heads of td3.py and apex_dqn.py:
`learning_starts=100`, and the ratio of samples to inserts is kept (`samples_per_insert=auto`). The networks have
`hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.apex import NoisyApexActor
from rl_training.algorithms.common.critics import td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.td3 import td3_inputs, td3_loss, td3_model, td3_step, td3_target
from rl_training.config.algorithms.apex_td3 import ApexTD3Config
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic

apex_td3_loss = td3_loss


class ApexTD3(NoisyApexActor[ApexTD3Config, MLPDeterministicActorCritic]):
    """Each actor has its own noise; the learner is that of TD3."""

    def _gradient_step(self, batch: Transitions, noise: Tensor, actor_too: bool) -> tuple[Metrics, Tensor]:
        return td3_step(self, batch, noise, actor_too)

    def step_inputs(self, batch: Transitions) -> tuple[Tensor, bool]:
        return td3_inputs(self, batch)

    @torch.no_grad()
    def priorities(self, batch: Transitions) -> Tensor:
        """The mean over critics of |r + d min_i Q_i(s', mu(s')) - Q_i(s, a)|, with its own networks as targets."""
        target = td3_target(batch, self.model, torch.zeros_like(batch.actions))
        return td_errors(self.model.q_values(batch.obs, batch.actions), target)

    def make_model(self) -> MLPDeterministicActorCritic:
        return td3_model(self)
