"""A2C: synchronous advantage actor-critic.

Mnih et al. (2016), arXiv:1602.01783, the synchronous form of its algorithm S3: N envs step together, and one gradient
step uses all of them.

Deviations: advantages may use GAE (`gae_lambda=1` gives the paper's n-step returns); losses are averaged over the
rollout, not summed; gradients are clipped by their norm (`max_grad_norm=0.5`); `entropy_coef=0` (the paper has 0.01 for
Atari); a truncated episode bootstraps from its true final observation, which the paper does not consider. On vectors,
policy and value are separate networks; on images they share the encoder, and `value_coef=0.5` weighs how much the value
trains it.
"""

from __future__ import annotations

from torch import Tensor

from rl_training.algorithms.common.compile.compiled_step import Scalar
from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.novelty import NoveltyLearner
from rl_training.algorithms.common.on_policy import (
    PolicyBatch,
    actor_critic_loss,
    normalize,
    policy_batch,
    rollout_metrics,
)
from rl_training.algorithms.common.optimizer import chosen_optimizer
from rl_training.algorithms.common.state_exploration import StateNoiseLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.a2c import A2CConfig
from rl_training.config.base import OnPolicyConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def a2c_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: PolicyBatch,
    config: OnPolicyConfig,
    *,
    entropy_coef: Scalar,
) -> tuple[Tensor, Metrics]:
    """L = -mean log pi(a|s) A  +  c_v 1/2 mean (R - V(s))^2  -  c_e mean H(pi(.|s))

    A = R - V is a constant in the policy term: no gradient flows through it into the critic. All inputs are [B].
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = -(log_probs * advantages).mean()
    value_loss = 0.5 * (values - batch.returns).square().mean()
    return actor_critic_loss(policy_loss, value_loss, entropy, value_coef=config.value_coef, entropy_coef=entropy_coef)


class A2C(NoveltyLearner[A2CConfig], StateNoiseLearner[A2CConfig]):
    """One gradient step on each rollout."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        noise = self.initial_noise
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model, state_noise=noise))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, **chosen_optimizer(self.config))
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.num_steps * self.num_envs)

    def update(self, rollout: Rollout) -> UpdateResult:
        batch = policy_batch(rollout, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        novelty = self.seek_novelty(batch, rollout)
        self.set_learning_rates()
        metrics = self.gradient_step(batch, self.scheduled_tensor(self.config.entropy_coef))
        self.updates += 1
        metrics |= novelty | rollout_metrics(batch, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(some_rows(batch.obs), some_rows(batch.actions)))
        metrics["learning_rate"] = self.scheduled_tensor(self.config.learning_rate)
        return UpdateResult(metrics)

    def _gradient_step(self, batch: PolicyBatch, entropy_coef: Tensor) -> Metrics:
        outputs = self.model.evaluate_actions(batch.obs, batch.actions)
        loss, metrics = a2c_loss(*outputs, batch, self.config, entropy_coef=entropy_coef)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics
