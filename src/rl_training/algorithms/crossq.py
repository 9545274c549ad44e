"""CrossQ: SAC with batch norm in its critics and without target networks.

Bhatt, Palenicek, Belousov, Argus, Amiranashvili, Brox, Peters (2024), arXiv:1902.05605, algorithm 1. States with their
actions and next states with the policy's actions pass through the critics in one batch. So both are normalized by the
same statistics, and the values of the second half are good enough to be the targets of the first.

Which pass has which statistics: that joint pass, and the actor's own in its update, normalize by their batch and learn
from it. The next actions, the critics in the actor's loss, acting and evaluation use the running statistics. After
`renorm_after` passes, batch norm becomes batch renormalization (arXiv:1702.03275), as in the authors' code.

Deviations: the networks have `hidden_sizes=[64, 64]` with `activation=tanh` and `initialization=orthogonal` (critics of
two layers of 2048 ReLU units, an actor of two of 256). The running variance is unbiased. The temperature is learned
through its logarithm, as in SAC. Warm-up is `learning_starts=100` uniform random steps (5,000).

Options beyond the paper: `n_step` above 1 leaves out the entropy of the steps in between and does not correct for
their older policies; the weights of prioritized replay are relative to the largest one in the batch, with
`importance_exponent={start: 0.4, end: 1.0}`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.common.critics import critic_loss, td_errors
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.soft_actor_critic import SoftActorCritic
from rl_training.algorithms.sac import sac_actor_loss, sac_target
from rl_training.config.algorithms.crossq import CrossQConfig
from rl_training.data.transitions import Transitions
from rl_training.models.mlp_crossq import MLPCrossQModel


def crossq_loss(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """The critics' loss: sum_i mean w (Q_i(s, a) - y)^2.   q_values [2, B], the first half of the joint pass."""
    return critic_loss(q_values, target, weights)


class CrossQ(SoftActorCritic[CrossQConfig, MLPCrossQModel]):
    """The critics learn in every update, the actor and the temperature in every `policy_delay`-th."""

    has_target: ClassVar[bool] = False

    def _gradient_step(
        self, batch: Transitions, next_noise: Tensor, noise: Tensor, actor_too: bool
    ) -> tuple[Metrics, Tensor]:
        model, temperature = self.model, self.temperature.value()
        with torch.no_grad():
            next_actions, next_log_probs = model.sample(batch.next_obs, next_noise)
        both_obs = torch.cat([batch.obs, batch.next_obs])
        both_actions = torch.cat([batch.actions, next_actions])
        q_values, next_q = model.q_values(both_obs, both_actions, batch_statistics=True).chunk(2, 1)
        target = sac_target(batch, next_q.detach(), next_log_probs, temperature)
        loss, metrics = crossq_loss(q_values, target, batch.weights)
        metrics["critic_grad_norm"] = self.critic_optimizer.step(loss)
        if actor_too:
            actions, log_probs = model.sample(batch.obs, noise, batch_statistics=True)
            actor_loss = sac_actor_loss(model.q_values(batch.obs, actions), log_probs, temperature)
            metrics |= self.soft_actor_step(actor_loss, log_probs, temperature)
        return metrics, td_errors(q_values, target)

    def step_inputs(self, batch: Transitions) -> tuple[Any, ...]:
        """As in SAC, and whether the actor learns in this update."""
        return *super().step_inputs(batch), (self.updates + 1) % self.config.policy_delay == 0

    def optimizer_settings(self) -> dict[str, Any]:
        return super().optimizer_settings() | {"betas": (self.config.adam_beta1, 0.999)}

    def make_model(self) -> MLPCrossQModel:
        return MLPCrossQModel(self.spaces, self.model_config, renorm_after=self.config.renorm_after)
