"""Ape-X with D4PG: many actors with different noise fill one prioritized replay, from which one D4PG learner learns.

Barth-Maron et al. (2018), arXiv:1804.08617: D4PG on the actors of Horgan et al. (2018), arXiv:1803.00933. Actor i of N
adds noise of scale `exploration_noise` * 0.4 ** (7 i / (N - 1)), and says with its own networks how surprising its
transitions are. With one actor in lockstep the run is D4PG's, bit for bit.

Deviations from the papers: D4PG's actors all have the same noise; an `exploration_ladder` of false gives that. The rest
is as in the heads of d4pg.py and apex_dqn.py: targets follow softly (`tau=0.005`), importance weights are relative to
the largest one in the batch, with `importance_exponent=0.4`, and the ratio of samples to inserts is kept
(`samples_per_insert=auto`). The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common import projections
from rl_training.algorithms.common.apex import NoisyApexActor
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.d4pg import d4pg_loss, d4pg_model, d4pg_step, d4pg_target
from rl_training.config.algorithms.apex_d4pg import ApexD4PGConfig
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_d4pg import MLPD4PGModel

apex_d4pg_loss = d4pg_loss


class ApexD4PG(NoisyApexActor[ApexD4PGConfig, MLPD4PGModel]):
    """Each actor has its own noise; the learner is that of D4PG."""

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        return d4pg_step(self, batch)

    @torch.no_grad()
    def priorities(self, batch: Transitions) -> Tensor:
        """The KL divergence of Z(s, a) from the n-step target, with its own networks as targets."""
        target, _ = d4pg_target(batch, self.model, self.model.support)
        return projections.kl_divergence(target, self.model.distribution_logits(batch.obs, batch.actions))

    def make_model(self) -> MLPD4PGModel:
        return d4pg_model(self)
