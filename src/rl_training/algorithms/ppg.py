"""PPG: phasic policy gradient. PPO in the policy phase, and at intervals an auxiliary phase that trains the trunk.

Cobbe, Hilton, Klimov, Schulman (2020), arXiv:2009.04416, algorithm 1, in the single-network form of its section 3.6. In
the policy phase, the value head reads the trunk's features and sends no gradient into them. In the auxiliary phase, the
value and auxiliary heads train the trunk, while a KL term keeps the policy where it was.

Deviations: policy and value are trained on the same minibatches, so E_pi = E_V = `update_epochs=1` (the paper's default
is 1 for both); auxiliary minibatches are single transitions in random order, not segments of trajectories; the value
head has a hidden layer; gradients are clipped by their norm (`max_grad_norm=0.5`); `entropy_coef=0` (the paper has
0.01), `gamma=0.99` (0.999) and `normalize_rewards=false` (it normalizes them); Gaussian policies work too. As in the
paper, advantages are normalized over the rollout, the auxiliary phase uses the value targets stored with the rollouts,
and a cycle that is incomplete at the end of a run has no auxiliary phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_training.algorithms.common.counters import Counter
from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.learner import UpdateResult
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.novelty import NoveltyLearner
from rl_training.algorithms.common.on_policy import (
    PolicyBatch,
    actor_critic_loss,
    minibatches,
    normalize,
    policy_batch,
    rollout_metrics,
)
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.ppo import ppo_policy_loss, ppo_value_loss, ratio_metrics
from rl_training.config.algorithms.ppg import PPGConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_ppg import MLPPPGModel


def ppg_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: PolicyBatch,
    config: PPGConfig,
    *,
    clip_range: float,
    entropy_coef: float,
) -> tuple[Tensor, Metrics]:
    """The policy phase: L = L_clip + c_v 1/2 mean (V - R)^2 - c_e mean H.   All [B].

    L_clip is PPO's. Advantages are used as they are: `update` may have normalized them over the whole rollout.
    """
    policy_loss = ppo_policy_loss(log_probs, batch.log_probs, batch.advantages, clip_range)
    value_loss = ppo_value_loss(values, batch.returns, batch.values, None)
    loss, metrics = actor_critic_loss(
        policy_loss, value_loss, entropy, value_coef=config.value_coef, entropy_coef=entropy_coef
    )
    return loss, metrics | ratio_metrics(log_probs, batch.log_probs, clip_range)


def ppg_auxiliary_loss(
    kl: Tensor, values: Tensor, auxiliary_values: Tensor, returns: Tensor, *, clone_coef: float
) -> tuple[Tensor, Metrics]:
    """The auxiliary phase: L = 1/2 mean (V_aux - R)^2 + beta mean KL(pi_old || pi) + 1/2 mean (V - R)^2.   All [B].

    pi_old, the teacher, is the policy at the start of the phase. R are the targets stored with the rollouts.
    """
    auxiliary_head_loss = 0.5 * (auxiliary_values - returns).square().mean()
    value_loss = 0.5 * (values - returns).square().mean()
    mean_kl = kl.mean()
    loss = auxiliary_head_loss + clone_coef * mean_kl + value_loss
    metrics = {
        "auxiliary_loss": loss,
        "auxiliary_head_loss": auxiliary_head_loss,
        "auxiliary_value_loss": value_loss,
        "auxiliary_kl": mean_kl,
    }
    return loss, {name: value.detach() for name, value in metrics.items()}


class RolloutCache:
    """Observations and value targets of the rollouts since the last auxiliary phase; part of the state."""

    def __init__(self) -> None:
        self.obs: list[Tensor] = []
        self.returns: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.obs)

    def add(self, obs: Tensor, returns: Tensor) -> None:
        # Copies: the next rollout overwrites the arrays that these tensors are views of.
        self.obs.append(obs.clone())
        self.returns.append(returns.clone())

    def clear(self) -> None:
        self.obs, self.returns = [], []

    def state_dict(self) -> dict[str, list[Tensor]]:
        return {"obs": list(self.obs), "returns": list(self.returns)}

    def load_state_dict(self, state: Mapping[str, list[Tensor]]) -> None:
        self.obs, self.returns = ([part.clone() for part in state[name]] for name in ("obs", "returns"))


class PPG(NoveltyLearner[PPGConfig]):
    """A policy phase on each rollout, and after `policy_phases` of them an auxiliary phase on all of these rollouts."""

    probe_every = 10

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model: MLPPPGModel = self.build(lambda: MLPPPGModel(spaces, config.model))
        epsilon, max_grad_norm = self.config.adam_epsilon, self.config.max_grad_norm
        # The parameters of the auxiliary head come last and take no part in the policy phase, whose optimizer works on
        # the first part of the same vector. It must be created second.
        everything = list(self.model.parameters())
        in_head = len(list(self.model.auxiliary_head.parameters()))
        self.auxiliary_optimizer = Optimizer(everything, epsilon=epsilon, max_grad_norm=max_grad_norm)
        self.policy_optimizer = Optimizer(everything[:-in_head], epsilon=epsilon, max_grad_norm=max_grad_norm)
        self.cache = RolloutCache()
        self.auxiliary_phases = Counter()

    def update(self, rollout: Rollout) -> UpdateResult:
        """The policy phase, and the auxiliary phase when it is due."""
        config, rng = self.config, self.streams["minibatches"]
        batch = policy_batch(rollout, self.model, gamma=config.gamma, gae_lambda=config.gae_lambda)
        novelty = self.seek_novelty(batch, rollout)
        self.cache.add(batch.obs, batch.returns)
        if config.normalize_advantages:
            batch.advantages = normalize(batch.advantages)
        self.policy_optimizer.set_learning_rate(self.scheduled(config.learning_rate))
        clip_range, entropy_coef = self.scheduled(config.clip_range), self.scheduled(config.entropy_coef)
        history: list[Metrics] = []
        for minibatch in minibatches(batch, config.minibatch_size, rng, config.update_epochs):
            outputs = self.model.evaluate_actions(minibatch.obs, minibatch.actions)
            loss, metrics = ppg_loss(*outputs, minibatch, config, clip_range=clip_range, entropy_coef=entropy_coef)
            metrics["grad_norm"] = self.policy_optimizer.step(loss)
            history.append(metrics)
        self.updates += 1
        metrics = mean_metrics(history)
        metrics |= novelty | rollout_metrics(batch, metrics, self.model)
        metrics |= self.probe(lambda: self.model.evaluate_actions(some_rows(batch.obs), some_rows(batch.actions)))
        metrics["learning_rate"] = self.scheduled_tensor(config.learning_rate)
        if len(self.cache) >= config.policy_phases:
            metrics |= self.auxiliary_update().metrics
        return UpdateResult(metrics)

    def auxiliary_update(self) -> UpdateResult:
        """Train the trunk on all cached rollouts, then empty the cache."""
        if not len(self.cache):
            raise ValueError("an auxiliary phase needs rollouts: call update() first")
        self.auxiliary_optimizer.set_learning_rate(self.scheduled(self.config.auxiliary_learning_rate))
        obs, returns = torch.cat(self.cache.obs), torch.cat(self.cache.returns)
        teacher = self._teacher()
        history: list[Metrics] = []
        for rows in self._auxiliary_rows(len(obs)):
            parameters, values, auxiliary_values = self.model.auxiliary(obs[rows])
            kl = self.model.distribution.kl(teacher[rows], parameters)
            loss, metrics = ppg_auxiliary_loss(
                kl, values, auxiliary_values, returns[rows], clone_coef=self.config.clone_coef
            )
            metrics["auxiliary_grad_norm"] = self.auxiliary_optimizer.step(loss)
            history.append(metrics)
        self.cache.clear()
        self.auxiliary_phases.value += 1
        return UpdateResult(mean_metrics(history))

    @torch.no_grad()
    def _teacher(self) -> Tensor:
        """The current policy on every cached observation, no matter which policy collected it."""
        return torch.cat([self.model.policy(obs) for obs in self.cache.obs])

    def _auxiliary_rows(self, count: int) -> Iterator[Tensor]:
        pieces = max(1, round(count / self.config.auxiliary_minibatch_size))
        for _ in range(self.config.auxiliary_epochs):
            order = torch.from_numpy(self.streams["auxiliary_minibatches"].permutation(count)).to(self.device)
            yield from order.tensor_split(pieces)
