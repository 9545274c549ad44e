"""Recurrent PPO: PPO for partially observable environments, with an LSTM or GRU as its memory.

The losses are PPO's: Schulman, Wolski, Dhariwal, Radford, Klimov (2017), arXiv:1707.06347. Training a recurrent
actor-critic on parts of trajectories follows Mnih et al. (2016), arXiv:1602.01783, section 4.

Deviations from PPO, all because of the memory: a minibatch consists of whole sequences (`RecurrentRolloutBuffer` cuts
them), each of which starts from the memory that the policy had there when it acted; values are those that the critic
computed when it acted; where a time limit or the end of the rollout cuts an episode, the bootstrap is the value of the
observation that really followed, WITH the memory that led to it. Gradients end where a sequence starts. Policy and
value have a recurrent network each (`shared_memory=false`); on images they share the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.compile.compiled_step import Scalar
from rl_training.algorithms.common.learner import Action, UpdateResult
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.novelty import NoveltyLearner
from rl_training.algorithms.common.on_policy import PolicyBatch, flat_batch, rollout_metrics
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.ppo import ppo_loss
from rl_training.config.algorithms.recurrent_ppo import RecurrentPPOConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.recurrent_rollout_buffer import RecurrentRolloutBuffer, Sequences
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic


def recurrent_ppo_loss(
    model: LSTMActorCritic,
    batch: PolicyBatch,
    sequences: Sequences,
    config: RecurrentPPOConfig,
    *,
    clip_range: Scalar,
    entropy_coef: Scalar,
) -> tuple[Tensor, Metrics]:
    """PPO's loss with pi(a_t | o_1 ... o_t) and V(o_1 ... o_t) in place of pi(a|s) and V(s).

        r_t = pi(a_t | o_1 ... o_t) / pi_old(a_t | o_1 ... o_t)

    `batch` holds the transitions [B], without padding; `sequences` gives their order.
    """
    if len(sequences.rows) != len(batch):
        raise ValueError(f"the sequences have {len(sequences.rows)} steps, the batch {len(batch)}")
    outputs = model.evaluate_actions(batch.obs, batch.actions, sequences)
    return ppo_loss(*outputs, batch, config, clip_range=clip_range, entropy_coef=entropy_coef)


class RecurrentPPO(NoveltyLearner[RecurrentPPOConfig]):
    """PPO with a recurrent policy: several epochs over each rollout, in minibatches of whole sequences."""

    probe_every = 10

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        self.model: LSTMActorCritic = self.build(
            lambda: LSTMActorCritic(
                spaces,
                config.model,
                cell=settings.cell,
                memory_size=settings.memory_size,
                memory_layers=settings.memory_layers,
                shared_memory=settings.shared_memory,
            )
        )
        self.optimizer = self.add_optimizer(self.model, settings.learning_rate, epsilon=settings.adam_epsilon)
        self.buffer = RecurrentRolloutBuffer(settings.sequence_length)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        rng = self.streams["exploration"] if explore else None
        actions, extras = self.model.act(obs, rng, memory, episode_starts)
        return Action(actions, extras, extras["memory"])

    def update(self, rollout: Rollout) -> UpdateResult:
        batch = self._batch(rollout)
        novelty = self.seek_novelty(batch, rollout)
        self.buffer.store(rollout)
        self.set_learning_rates()
        clip_range = self.scheduled_tensor(self.config.clip_range)
        entropy_coef = self.scheduled_tensor(self.config.entropy_coef)
        history: list[Metrics] = []
        for minibatch, sequences in self._minibatches(batch):
            step_metrics = self._gradient_step(minibatch, sequences, clip_range, entropy_coef)
            if step_metrics is None:
                break
            history.append(step_metrics)
        self.updates += 1
        metrics = mean_metrics(history)
        valid = batch.select(torch.from_numpy(np.flatnonzero(rollout.valid)).to(self.device))
        metrics |= novelty | rollout_metrics(valid, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(minibatch.obs, minibatch.actions, sequences))
        return UpdateResult(metrics | {"learning_rate": self.scheduled_tensor(self.config.learning_rate)})

    def _gradient_step(
        self, minibatch: PolicyBatch, sequences: Sequences, clip_range: Tensor, entropy_coef: Tensor
    ) -> Metrics | None:
        """One gradient step, or None if the policy has already moved too far."""
        loss, metrics = recurrent_ppo_loss(
            self.model, minibatch, sequences, self.config, clip_range=clip_range, entropy_coef=entropy_coef
        )
        # Reading a value waits for the device, so only runs with `target_kl` do it.
        if self.config.target_kl is not None and float(metrics["approx_kl"]) > self.config.target_kl:
            return None
        return metrics | {"grad_norm": self.optimizer.step(loss)}

    def _batch(self, rollout: Rollout) -> PolicyBatch:
        """All steps [T * N]. `act` stored their values; the model computes those of the observations that follow."""
        memory = rollout.extras["memory"]
        following = np.concatenate([rollout.last_obs, rollout.final_obs])
        # A last observation that starts an episode gets a value with the memory of another episode, which nothing uses.
        remembered = np.concatenate([memory[-1], memory[rollout.final_steps, rollout.final_envs]])
        with torch.no_grad():
            obs, state = (torch.from_numpy(part).to(self.device) for part in (following, remembered))
            values = self.model.value(obs, state).cpu().numpy()
        return flat_batch(
            rollout,
            rollout.extras["values"],
            *np.split(values, [len(rollout.last_obs)]),
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
            obs=torch.from_numpy(rollout.obs.reshape(-1, *rollout.obs.shape[2:])).to(self.device),
        )

    def _minibatches(self, batch: PolicyBatch) -> Iterator[tuple[PolicyBatch, Sequences]]:
        for _ in range(self.config.update_epochs):
            for rows, sequences in self.buffer.minibatches(self.config.minibatch_size, self.streams["minibatches"]):
                yield batch.select(rows.to(self.device)), sequences.to(self.device)
