"""IMPALA: actor-critic on trajectories of a policy that may be several updates old, corrected by V-trace.

Espeholt et al. (2018), arXiv:1802.01561, section 4. Rollouts may come from a loop that alternates between collecting
and learning, or from actors that run ahead. The weights pi/mu use the log-probabilities that were stored when the
actions were taken.

Deviations: losses are averaged over the rollout, not summed, so the gradient clip and epsilon are on another scale
(RMSprop's 1e-5 for the mean of 100 steps is the paper's 0.1 for their sum; with a much smaller value the policy drifts
when there is nothing to learn); `entropy_coef=0` (the paper has a positive one); a truncated episode bootstraps from
its true final observation; lambda may shorten the traces (`gae_lambda=1`, as in the paper, does not); a rollout may be
split by envs into several gradient steps, with new weights before each. On vectors, policy and value are separate
networks; on images they share the encoder, and `value_coef=0.5` weighs how much the value trains it.
"""

from __future__ import annotations

from torch import Tensor

from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import PolicyBatch, actor_critic_loss, normalize, spread_metrics
from rl_training.algorithms.common.optimizer import chosen_optimizer
from rl_training.algorithms.common.returns import explained_variance
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.trajectories import (
    Trajectories,
    approximate_kl,
    column_groups,
    importance_metrics,
)
from rl_training.config.algorithms.impala import IMPALAConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def impala_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: PolicyBatch,
    config: IMPALAConfig,
    *,
    entropy_coef: float,
) -> tuple[Tensor, Metrics]:
    """L = -mean log pi(a|s) A  +  c_v 1/2 mean (v - V(s))^2  -  c_e mean H(pi(.|s))                 (section 4.2)

        A = min(pg_rho_bar, pi(a|s) / mu(a|s)) (r + gamma v' - V(s))

    A and v, the V-trace target, are constants. All inputs are [B]; `batch` holds A as `advantages`, v as `returns` and
    log mu as `log_probs`.
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = -(log_probs * advantages).mean()
    value_loss = 0.5 * (values - batch.returns).square().mean()
    loss, metrics = actor_critic_loss(
        policy_loss, value_loss, entropy, value_coef=config.value_coef, entropy_coef=entropy_coef
    )
    metrics |= importance_metrics(log_probs, batch.log_probs, config.rho_bar)
    metrics["approx_kl"] = approximate_kl(log_probs, batch.log_probs)
    metrics["explained_variance"] = explained_variance(batch.values, batch.returns)
    return loss, metrics


class IMPALA(Learner[IMPALAConfig]):
    """One pass over each rollout, in one or a few gradient steps."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, **chosen_optimizer(self.config))

    def update(self, rollout: Rollout) -> UpdateResult:
        self.set_learning_rates()
        entropy_coef = self.scheduled(self.config.entropy_coef)
        history: list[Metrics] = []
        for group in column_groups(rollout, self.config.num_minibatches, self.streams["minibatches"]):
            trajectories = Trajectories(group, self.model)
            vtrace = trajectories.vtrace(trajectories.log_probs, self.config)
            minibatch = trajectories.batch(
                trajectories.behavior_log_probs, vtrace.policy_gradient_advantages, vtrace.targets
            )
            loss, metrics = impala_loss(*trajectories.outputs, minibatch, self.config, entropy_coef=entropy_coef)
            metrics |= spread_metrics(minibatch, metrics["entropy"], self.model)
            metrics["grad_norm"] = self.optimizer.step(loss)
            history.append(metrics)
        self.updates += 1
        metrics = mean_metrics(history) | self.probe(lambda: trajectories.evaluate(some_rows))
        return UpdateResult(metrics | {"learning_rate": self.scheduled_tensor(self.config.learning_rate)})
