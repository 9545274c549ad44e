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
from rl_training.algorithms.common.exploration import epsilon_greedy, uniform_or_greedy
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.on_policy import GradientSteps, RolloutBatch, flat, valid_rows
from rl_training.algorithms.common.returns import lambda_returns
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.traced_acting import TracedActing, has_methods_of, takes_vectors
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
        self.gradient_steps = GradientSteps(self, self._gradient_step)

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
        return Action(actions, {"values": np.maximum.reduce(q, 1)})  # faster than `max` for a few rows

    def traced_acting(self) -> TracedActing | None:
        model = self.model
        if not takes_vectors(model) or not has_methods_of(PQN, self, "act", "q_values"):
            return None
        ours = has_methods_of(MLPQNetwork, model, "q_values", "advantage_numpy", "_input", "_normalized")
        is_plain = model.state_value is None  # `q_values` of the learner leaves out the dueling stream
        return TracedActing(self._exploring_actions, self._choose) if ours and is_plain else None

    def _exploring_actions(self, rng: np.random.Generator, steps: int, rows: int) -> np.ndarray:
        """The uniform actions of `act` in its next steps [steps, rows], and -1 where it is greedy."""
        epsilon = self.scheduled(self.config.exploration)  # the same for a whole rollout, whose steps count after it
        return uniform_or_greedy(self.spaces.action_sizes[0], epsilon, rng, steps, rows)

    def _choose(self, obs: Tensor, uniform: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        values, greedy = self.model.q_values(obs).max(1)
        return torch.where(uniform < 0, greedy, uniform), {"values": values}

    def q_values(self, obs: np.ndarray) -> np.ndarray:
        """Q(s, .) [N, A] in NumPy, -inf for actions that are not allowed.

        Without a dueling stream, the advantages of the model are Q itself.
        """
        return self.model.masked_numpy(self.model.advantage_numpy(obs), obs)

    def update(self, rollout: Rollout) -> UpdateResult:
        config = self.config
        batch = self.returns_of(rollout)
        self.set_learning_rates()
        metrics = self.gradient_steps(batch, rollout.valid.size, self.streams["minibatches"])
        self.updates += 1
        metrics |= {"target_std": batch.returns.std(correction=0)}
        metrics |= self.probe(lambda: self.model.q_values(some_rows(batch.obs)))
        metrics["exploration"] = self.scheduled_tensor(config.exploration)
        metrics["learning_rate"] = self.scheduled_tensor(config.learning_rate)
        return UpdateResult(metrics)

    def returns_of(self, rollout: Rollout) -> ReturnBatch:
        """The valid steps of a rollout with their Q(lambda) returns, from the network that acted."""
        config, num_envs = self.config, len(rollout.last_obs)
        following = self.q_values(np.concatenate([rollout.last_obs, rollout.final_obs])).max(1)
        next_values = rollout.next_values(rollout.extras["values"], following[:num_envs], following[num_envs:])
        discounts = rollout.discounts(config.gamma)
        returns = lambda_returns(rollout.rewards, next_values, discounts, rollout.ends, config.q_lambda)
        columns = (rollout.obs, rollout.actions, returns)
        return valid_rows(ReturnBatch(*(flat(column, self.device) for column in columns)), rollout)

    def _gradient_step(self, batch: ReturnBatch) -> Metrics:
        q = self.model.q_values(batch.obs).gather(1, batch.actions[:, None]).squeeze(1)
        loss, metrics = pqn_loss(q, batch)
        metrics["grad_norm"] = self.optimizer.step(loss)
        return metrics
