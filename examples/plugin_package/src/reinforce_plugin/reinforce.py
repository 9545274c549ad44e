"""REINFORCE with a learned baseline (Williams 1992): the score function times how much better the return was.

Deviations: rollouts have a fixed length, so the return of an unfinished episode continues with the value function. The
entropy bonus and normalized advantages are options of the library, not of the paper.
"""

from __future__ import annotations

from torch import Tensor

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.on_policy import PolicyBatch, actor_critic_loss, normalize, policy_batch
from rl_training.algorithms.common.streams import Streams
from rl_training.config.base import GaeLambda, NormalizeAdvantages, NumSteps, OnPolicyConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


class ReinforceConfig(OnPolicyConfig):
    """With `gae_lambda: 1` the advantage is the whole sum of rewards minus the baseline, as in the paper."""

    num_steps: NumSteps = 64
    gae_lambda: GaeLambda = 1.0
    normalize_advantages: NormalizeAdvantages = False


def reinforce_loss(
    log_probs: Tensor, entropy: Tensor, values: Tensor, batch: PolicyBatch, config: ReinforceConfig, entropy_coef: float
) -> tuple[Tensor, Metrics]:
    """L = -mean A log pi(a|s)  +  c_v 1/2 mean (R - V(s))^2  -  c_e mean H(pi(.|s)), with constant A. Inputs [B]."""
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = -(advantages * log_probs).mean()
    value_loss = 0.5 * (batch.returns - values).square().mean()
    return actor_critic_loss(policy_loss, value_loss, entropy, value_coef=config.value_coef, entropy_coef=entropy_coef)


class Reinforce(Learner[ReinforceConfig]):
    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams) -> None:
        super().__init__(spaces, config, streams)
        self.model = self.build(lambda: MLPActorCritic(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate)

    def update(self, rollout: Rollout) -> UpdateResult:
        batch = policy_batch(rollout, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        self.set_learning_rates()
        outputs = self.model.evaluate_actions(batch.obs, batch.actions)
        loss, metrics = reinforce_loss(*outputs, batch, self.config, self.scheduled(self.config.entropy_coef))
        metrics["grad_norm"] = self.optimizer.step(loss)
        self.updates += 1
        return UpdateResult(metrics)
