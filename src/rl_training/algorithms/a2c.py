"""A2C: synchronous advantage actor-critic.

Mnih et al. (2016), arXiv:1602.01783, the synchronous form of its algorithm S3: N envs step together and one
gradient is taken from all of them.

Deviations: advantages may use GAE (`gae_lambda` 1 gives the paper's n-step returns); losses are averaged, not
summed, over the rollout; policy and value are separate networks; a truncated episode bootstraps from its true
final observation, which the paper's environments never needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.compile.compiled_step import Scalar
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult, build_seeded
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.on_policy import (
    PolicyBatch,
    ReturnNormalizer,
    learner_rewards,
    normalize,
    policy_batch,
)
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.returns import explained_variance
from rl_training.algorithms.common.streams import Streams
from rl_training.config.a2c import A2CConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


def a2c_loss(
    log_probs: Tensor, entropy: Tensor, values: Tensor, batch: PolicyBatch, config: A2CConfig, *, entropy_coef: Scalar
) -> tuple[Tensor, Metrics]:
    """L = -mean log pi(a|s) A  +  c_v 1/2 mean (R - V(s))^2  -  c_e mean H(pi(.|s))

    A = R - V is a constant for the policy term: no gradient flows through it into the critic. All inputs [B].
    """
    advantages = normalize(batch.advantages) if config.normalize_advantages else batch.advantages
    policy_loss = -(log_probs * advantages).mean()
    value_loss = 0.5 * (values - batch.returns).square().mean()
    mean_entropy = entropy.mean()
    loss = policy_loss + config.value_coef * value_loss - entropy_coef * mean_entropy
    metrics = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}
    return loss, {name: value.detach() for name, value in metrics.items()}


class A2C(Learner):
    """One gradient step on each rollout."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        assert isinstance(config.algo_kwargs, A2CConfig)
        self.config = config.algo_kwargs
        self.model: MLPActorCritic = self.to_device(
            build_seeded(streams, lambda: MLPActorCritic(spaces, self.model_config))
        )
        self.optimizer = Optimizer(
            self.model.parameters(),
            kind=self.config.optimizer,
            epsilon=self.config.optimizer_epsilon,
            decay=self.config.rmsprop_decay,
            max_grad_norm=self.config.max_grad_norm,
        )
        self.return_normalizer = (
            ReturnNormalizer(self.config.gamma, self.num_envs) if self.config.normalize_rewards else None
        )
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.num_steps * self.num_envs)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        return Action(*self.model.act(obs, self.streams["exploration"] if explore else None))

    def update(self, batch: Rollout) -> UpdateResult:
        rewards = learner_rewards(self, self.return_normalizer, batch)
        data = policy_batch(batch, rewards, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        learning_rate = self.scheduled(self.config.learning_rate)
        self.optimizer.set_learning_rate(learning_rate)
        metrics = self.gradient_step(data, torch.tensor(self.scheduled(self.config.entropy_coef)))
        self.updates += 1
        self.observe(batch.obs, batch.valid)
        metrics["explained_variance"] = explained_variance(data.values, data.returns)
        return UpdateResult(metrics | {"learning_rate": torch.tensor(learning_rate)})

    def _gradient_step(self, batch: PolicyBatch, entropy_coef: Tensor) -> Metrics:
        outputs = self.model.evaluate_actions(batch.obs, batch.actions)
        loss, metrics = a2c_loss(*outputs, batch, self.config, entropy_coef=entropy_coef)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics
