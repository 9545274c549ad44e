"""REDQ and DroQ: SAC with many updates per step, which an ensemble of critics or dropout makes possible.

REDQ is Chen, Wang, Zhou, Ross (2021), arXiv:2101.05982, algorithm 1: ten critics, of which two, drawn anew in every
update, give the target; the actor climbs the mean of all. DroQ is Hiraoka, Imagawa, Hashimoto, Onishi, Tsuruoka (2022),
arXiv:2110.02034, algorithm 2: two critics with dropout and layer norm, in the targets and in the actor's loss too.
Both make 20 updates of the critics per step, and one of the actor and the temperature, after the last of them.

Deviations: a new batch for each of the 20 updates is sampled from the buffer as it is after the step, and the actor
learns from the last of these batches. The temperature is learned through its logarithm, as in SAC. Warm-up is
`learning_starts=100` uniform random steps (5,000). The networks have `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal` (256 and 256 ReLU units).

Options beyond the papers: `n_step` above 1 leaves out the entropy of the steps in between and does not correct for
their older policies; the weights of prioritized replay are relative to the largest one in the batch, with
`importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.soft_actor_critic import SoftActorCritic
from rl_training.algorithms.sac import sac_target
from rl_training.config.algorithms.redq import DroQConfig, REDQConfig
from rl_training.config.model_config import CriticConfig
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_redq import MLPREDQModel


def redq_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critics' loss: sum_i mean w (Q_i(s, a) - y)^2, with one target for all.   q_values [critics, B]."""
    return critic_loss(q_values, target, weights)


def droq_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """REDQ's loss: sum_i mean w (Q_i(s, a) - y)^2; what differs are the critics.   q_values [critics, B]."""
    return critic_loss(q_values, target, weights)


def redq_actor_loss(q_values: Tensor, log_probs: Tensor, temperature: Tensor) -> Tensor:
    """mean(alpha log pi(a|s) - mean_i Q_i(s, a)),  a reparameterized: the mean of all critics, not their minimum."""
    return (temperature * log_probs - q_values.mean(0)).mean()


class REDQ(SoftActorCritic[REDQConfig, MLPREDQModel]):
    """The critics learn in every update, the actor and the temperature in every `policy_delay`-th."""

    def _gradient_step(
        self, batch: Transitions, next_noise: Tensor, noise: Tensor, chosen: Tensor, masks: Tensor, actor_too: bool
    ) -> tuple[Metrics, Tensor]:
        model, temperature = self.model, self.temperature.value()
        with torch.no_grad():
            next_actions, next_log_probs = model.sample(batch.next_obs, next_noise)
            next_q = self.target.module.q_values(batch.next_obs, next_actions, masks[0]).index_select(0, chosen)
            target = sac_target(batch, next_q, next_log_probs, temperature)
        q_values = model.q_values(batch.obs, batch.actions, masks[1])
        loss, metrics = self.loss_of_critics(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        if actor_too:
            actions, log_probs = model.sample(batch.obs, noise)
            actor_loss = redq_actor_loss(model.q_values(batch.obs, actions, masks[2]), log_probs, temperature)
            metrics |= self.soft_actor_step(actor_loss, log_probs, temperature)
        self.target.follow(self.config.tau)
        return metrics, td_errors(q_values, target)

    def loss_of_critics(self, q_values: Tensor, target: Tensor, weights: Tensor | None) -> tuple[Tensor, Metrics]:
        return redq_loss(q_values, target, weights)

    def step_inputs(self, batch: Transitions) -> tuple[Any, ...]:
        """As in SAC; then the critics of the target, the masks of three passes, and whether the actor learns."""
        config = self.config
        chosen = self.streams["target_critics"].choice(config.num_critics, config.target_critics, replace=False)
        actor_too = (self.updates + 1) % config.policy_delay == 0
        return *super().step_inputs(batch), torch.from_numpy(chosen).to(self.device), self._masks(len(batch)), actor_too

    def _masks(self, rows: int) -> Tensor:
        """Masks of dropout [3, B, units] for the target, the critics and the actor's loss; of no units without it."""
        shape = (3, rows, sum(self.model.mask_sizes))
        if not shape[2]:
            return torch.ones(shape, device=self.device)
        kept = self.streams["dropout"].random(shape, dtype=np.float32) >= self.config.dropout
        return torch.from_numpy(kept.astype(np.float32)).to(self.device)

    def make_model(self) -> MLPREDQModel:
        settings = self.config
        return MLPREDQModel(self.spaces, self.model_config, num_critics=settings.num_critics, dropout=settings.dropout)


class DroQ(REDQ):
    """REDQ with two critics that have dropout and layer norm."""

    config_class = DroQConfig

    def loss_of_critics(self, q_values: Tensor, target: Tensor, weights: Tensor | None) -> tuple[Tensor, Metrics]:
        return droq_loss(q_values, target, weights)

    def make_model(self) -> MLPREDQModel:
        config = self.model_config
        critic = (config.critic or CriticConfig()).model_copy(update={"layer_norm": True})
        self.model_config = config.model_copy(update={"critic": critic})
        return super().make_model()
