"""A3C: asynchronous advantage actor-critic.

Mnih et al. (2016), arXiv:1602.01783, algorithm S3. Each actor collects a rollout, computes the gradient of its loss by
the weights that it acted with, and pushes the gradient to the learner, which applies it at once. The loss is A2C's: the
two algorithms differ only in who computes the gradient and how old it may be. With one actor, A3C is A2C bit for bit.

Deviations: actors do not write into shared weights without a lock. They push their gradients with the version of the
weights, so that the lag of each is known (`lag_mean`, `lag_max`), one older than `runtime.max_lag` updates is dropped,
and in lockstep a run is exact: actors push in turn, and push k is k updates old. RMSprop keeps its moments in the
learner, which is the paper's shared RMSprop. Everything else is as in A2C: advantages may use GAE (`gae_lambda=1` gives
the paper's n-step returns); losses are averaged over the rollout, not summed; gradients are clipped by their norm
(`max_grad_norm=0.5`); `entropy_coef=0` (the paper has 0.01 for Atari); a truncated episode bootstraps from its true
final observation. With `normalize_rewards`, each actor has the statistics of its own returns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.a2c import a2c_loss
from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.on_policy import policy_batch, rollout_metrics
from rl_training.algorithms.common.optimizer import chosen_optimizer
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.a3c import A3CConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.gradient_push import Push
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic

a3c_loss = a2c_loss


class A3C(Learner[A3CConfig]):
    """Actors call `gradient`, the learner applies what they push. Without actors it does both."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPActorCritic = self.build(lambda: MLPActorCritic(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, **chosen_optimizer(self.config))

    def gradient(self, rollout: Rollout) -> tuple[Tensor, Metrics]:
        """d L / d theta of A2C's loss on a rollout, as one vector, and its metrics. The weights stay as they are."""
        batch = policy_batch(rollout, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        outputs = self.model.evaluate_actions(batch.obs, batch.actions)
        entropy_coef = self.scheduled_tensor(self.config.entropy_coef)
        loss, metrics = a3c_loss(*outputs, batch, self.config, entropy_coef=entropy_coef)
        gradients = torch.autograd.grad(loss, self.optimizer.parameters)
        metrics |= rollout_metrics(batch, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(some_rows(batch.obs), some_rows(batch.actions)))
        return torch.cat([part.reshape(-1) for part in gradients]), metrics

    def update(self, batch: Rollout | Push) -> UpdateResult:
        """One step down the gradient that an actor has pushed, or on a rollout."""
        if isinstance(batch, Push):
            assert batch.gradient is not None
            gradient = torch.from_numpy(batch.gradient).to(self.device)
            metrics = {name: torch.from_numpy(value) for name, value in batch.metrics.items()}
        else:
            gradient, metrics = self.gradient(batch)
        self.set_learning_rates()
        metrics["grad_norm"] = self.optimizer.apply(gradient)
        self.updates += 1
        metrics["learning_rate"] = self.scheduled_tensor(self.config.learning_rate)
        return UpdateResult(metrics)
