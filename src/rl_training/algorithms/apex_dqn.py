"""Ape-X DQN: many actors with different exploration fill one prioritized replay, from which one learner learns.

Horgan et al. (2018), arXiv:1803.00933, algorithms 1 and 2, with the loss of DQN: double, dueling, n-step and
prioritized. Actor i of N takes a random action with probability 0.4 ** (1 + 7 i / (N - 1)) for the whole run, and says
with its own network how surprising its transitions are, so that replay can draw the surprising ones first. With one
actor in lockstep there is no ladder and one buffer: the run is DQN's, bit for bit.

Deviations: the ratio of samples to inserts is kept (`samples_per_insert=auto`), where the paper lets actors and learner
run freely (null does that). Actors get new weights with each ticket (`ticket_steps=8` steps of each env),
where the paper's fetch them every 400 frames. Rows enter replay at once, with the n-step error of the steps that are
there; their priority is corrected when the window is whole. A full shard of an actor overwrites its oldest rows, where
the paper removes the oldest rows of all. Adam instead of RMSprop. Target copies are counted in env steps
(`target_update_every=10000`), not in updates. `buffer_size=1000000` (the paper has 2 million) and
`learning_starts=100` (50,000). The layers are `hidden_sizes=[64, 64]` with `activation=tanh` and
`initialization=orthogonal`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.common.actor_ladder import EpsilonLadder
from rl_training.algorithms.common.apex import ApexActor
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import QLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.algorithms.dqn import bootstrap_target, dqn_loss, dqn_step, dqn_target, taken
from rl_training.config.algorithms.apex_dqn import ApexDQNConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_q import MLPQNetwork

apex_dqn_loss = dqn_loss


class ApexDQN(QLearner[ApexDQNConfig], ApexActor):
    """Each actor has its own epsilon; the learner is that of DQN."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPQNetwork = self.build(lambda: MLPQNetwork(spaces, config.model, dueling=self.config.dueling))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate)
        self.target = TargetNetwork(self.model, copied=True)
        self._ladder = EpsilonLadder(config)

    def take_place(self, index: int) -> None:
        self._ladder.take_place(index)

    def exploration_rate(self) -> float:
        return super().exploration_rate() if self._ladder.epsilon is None else self._ladder.epsilon

    def _gradient_step(self, batch: Transitions) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            target = bootstrap_target(self, batch)
        return dqn_step(self, batch, target)

    @torch.no_grad()
    def priorities(self, batch: Transitions) -> Tensor:
        """|r + d max_a Q(s', a) - Q(s, a)|: with its own network as target, double Q-learning changes nothing."""
        q = taken(self.model.q_values(batch.obs), batch.actions)
        return (q - dqn_target(batch, self.model.q_values(batch.next_obs))).abs()
