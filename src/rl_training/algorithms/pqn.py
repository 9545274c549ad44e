"""PQN: Q-learning on fresh rollouts of many envs, without replay and without a target network.

Gallici et al. (2024), arXiv:2407.04811, algorithm 1: Q(lambda) targets, epsilon-greedy actions, RAdam. What keeps it
stable instead of a target network is layer norm after every hidden layer. It is a setting of the network, and the
presets have it: `model.layer_norm: true`.

Deviations: without that setting there is no layer norm (`layer_norm=false`), and the encoder of images never has it.
Epsilon falls over the whole run (`exploration={start: 1.0, end: 0.05}`), in the paper over the first tenth. All envs
share one epsilon. A truncated episode bootstraps from its true final observation, and no return crosses an end. The
layers, which follow the encoder of images, are `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.exploration import epsilon_greedy
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import RolloutBatch, minibatches
from rl_training.algorithms.common.returns import lambda_returns
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.pqn import PQNConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_q import MLPQNetwork


@dataclass(slots=True)
class ReturnBatch(RolloutBatch):
    """Observations and actions with the Q(lambda) return that followed."""

    returns: Tensor


def pqn_loss(q: Tensor, batch: ReturnBatch) -> tuple[Tensor, Metrics]:
    """1/2 mean (R - Q(s, a))^2.  `q` [B] are the values of the actions taken; the returns R are constants."""
    loss = 0.5 * (q - batch.returns).square().mean()
    return loss, {"loss": loss.detach(), "q_mean": q.detach().mean(), "target_q_mean": batch.returns.mean()}


class PQN(Learner[PQNConfig]):
    """Several epochs of gradient steps on minibatches of each rollout, toward its own Q(lambda) returns."""

    probe_every = 10

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPQNetwork = self.build(lambda: MLPQNetwork(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate, kind="radam")
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.minibatch_size)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        """Epsilon-greedy actions, and max_a Q(s, a) of the same pass, which the returns bootstrap from."""
        if not explore:
            return Action(self.model.greedy_actions(obs))
        q = self.q_values(obs)
        epsilon, rng = self.scheduled(self.config.exploration), self.streams["exploration"]
        num_actions, masks = self.spaces.action_sizes[0], self.spaces.action_masks(obs)
        actions = epsilon_greedy(lambda _: q.argmax(1), obs, num_actions, epsilon, rng, masks)
        return Action(actions, {"values": q.max(1)})

    def q_values(self, obs: np.ndarray) -> np.ndarray:
        """Q(s, .) [N, A] in NumPy, -inf for actions that are not allowed.

        Without a dueling stream, the advantages of the model are Q itself.
        """
        return self.model.masked_numpy(self.model.advantage_numpy(obs), obs)

    def update(self, rollout: Rollout) -> UpdateResult:
        config = self.config
        batch = self.returns_of(rollout)
        self.set_learning_rates()
        rng = self.streams["minibatches"]
        history = [
            self.gradient_step(minibatch)
            for minibatch in minibatches(batch, config.minibatch_size, rng, config.update_epochs)
        ]
        self.updates += 1
        metrics = mean_metrics(history) | {"target_std": batch.returns.std(correction=0)}
        metrics |= self.probe(lambda: self.model.q_values(some_rows(batch.obs)))
        metrics["exploration"] = self.scheduled_tensor(config.exploration)
        metrics["learning_rate"] = self.scheduled_tensor(config.learning_rate)
        return UpdateResult(metrics)

    def returns_of(self, rollout: Rollout) -> ReturnBatch:
        """The valid steps of a rollout with their Q(lambda) returns, from the network that acted."""
        config, num_envs = self.config, len(rollout.last_obs)
        following = self.q_values(np.concatenate([rollout.last_obs, rollout.final_obs])).max(1)
        last_values, final_values = np.split(following, [num_envs])
        next_values = rollout.next_values(rollout.extras["values"], last_values, final_values)
        discounts = rollout.discounts(config.gamma)
        returns = lambda_returns(rollout.rewards, next_values, discounts, rollout.ends, config.q_lambda)
        # A copy: the collector writes the next rollout into the same arrays.
        columns = (rollout.obs, rollout.actions, returns)
        return ReturnBatch(*(torch.from_numpy(column[rollout.valid]).to(self.device) for column in columns))

    def _gradient_step(self, batch: ReturnBatch) -> Metrics:
        q = self.model.q_values(batch.obs).gather(1, batch.actions[:, None]).squeeze(1)
        loss, metrics = pqn_loss(q, batch)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics
