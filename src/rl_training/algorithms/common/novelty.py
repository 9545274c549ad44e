"""A bonus for novel observations, for every learner that takes its advantages from a rollout (RND).

Burda et al. (2018), arXiv:1810.12894. A network g learns to imitate a fixed random network f. Where g fails, the
observation is novel. The policy then learns from

    A = A_reward  +  c * A_novelty

Each advantage has its own critic and its own discount. Novelty is not episodic: its return continues in the next
episode, so that dying is no way to see familiar things no more. It never enters a reward or a return that is logged.

Deviations: the critic of novelty is a network of its own, where the paper has a second head; statistics of observations
start with the first rollout instead of steps of a random agent, and see each rollout before it is judged; novelty is a
mean over outputs (its scale is normalized away); all rows train g, where the paper keeps 25 % for 128 envs.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.metrics import Metrics, mean_metrics
from rl_training.algorithms.common.on_policy import PolicyBatch
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.returns import gae
from rl_training.algorithms.common.rewards import ReturnNormalizer
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.common.novelty import NoveltyConfig
from rl_training.config.base import AlgorithmConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.novelty_networks import NoveltyNetworks

Config = TypeVar("Config", bound=AlgorithmConfig)


def novelty_loss(errors: Tensor, values: Tensor, returns: Tensor) -> tuple[Tensor, Metrics]:
    """L = mean ||g(s) - f(s)||^2  +  1/2 mean (R - V(s))^2,  all [B]. The terms train separate networks."""
    imitation_loss, value_loss = errors.mean(), 0.5 * (values - returns).square().mean()
    metrics = {"novelty_loss": imitation_loss.detach(), "novelty_value_loss": value_loss.detach()}
    return imitation_loss + value_loss, metrics


def novelty_advantages(
    rewards: np.ndarray, values: np.ndarray, last_values: np.ndarray, *, gamma: float, gae_lambda: float
) -> np.ndarray:
    """GAE of one stream per env that no episode end interrupts: rewards and values [T, N], values after it [N]."""
    next_values = np.concatenate([values[1:], last_values[None]])
    endless = np.zeros(rewards.shape, bool)
    return gae(rewards, values, next_values, np.full_like(rewards, gamma), endless, gae_lambda)


class NoveltyBonus:
    """The networks, their optimizer and the scale of novelty: all of it is state of the learner."""

    def __init__(self, learner: Learner[Any], rows: int):
        config: NoveltyConfig = learner.config
        self.config, self.rows = config, rows
        self.networks = learner.build(
            lambda: NoveltyNetworks(learner.spaces, learner.model_config, config.novelty_size)
        )
        self.optimizer = Optimizer(self.networks.trained_parameters(), max_grad_norm=None)
        self.scale = ReturnNormalizer(config.novelty_gamma, learner.num_envs)

    def add(self, batch: PolicyBatch, rollout: Rollout, gae_lambda: float) -> tuple[Tensor, Metrics]:
        """Add the advantages of novelty to those of the batch. Returns the critic's targets [B], and metrics."""
        networks, valid = self.networks, rollout.valid
        num_steps, num_envs = rollout.rewards.shape
        flat_obs = rollout.obs.reshape(num_steps * num_envs, *rollout.obs.shape[2:])
        if networks.normalizer is not None:
            networks.normalizer.update(networks.features(flat_obs[valid.reshape(-1)]))
        errors, values = networks.measured(np.concatenate([flat_obs, rollout.last_obs, rollout.final_obs]))
        stream = num_steps * num_envs + num_envs  # the rows of obs and last_obs
        values = values[:stream].reshape(num_steps + 1, num_envs)
        # What a step led to: the next row of the stream, or the true final observation of a truncated episode. That of
        # a terminated one is not kept; its place takes the first observation of the next episode.
        novelty = errors[num_envs:stream].reshape(num_steps, num_envs)
        novelty[rollout.final_steps, rollout.final_envs] = errors[stream:]
        rewards = self.scale(novelty, np.zeros_like(valid), np.ones_like(valid))
        advantages = novelty_advantages(
            rewards, values[:-1], values[-1], gamma=self.config.novelty_gamma, gae_lambda=gae_lambda
        )
        device, coef = batch.advantages.device, np.float32(self.config.novelty_coef)
        kept = valid if len(batch) < valid.size else np.ones_like(valid)  # recurrent PPO needs every row
        batch.advantages = batch.advantages + torch.from_numpy(coef * advantages[kept]).to(device)
        metrics = {"novelty": torch.tensor(float(novelty[valid].mean()))}
        return torch.from_numpy((advantages + values[:-1])[kept]).to(device), metrics

    def fit(self, obs: Tensor, returns: Tensor, learning_rate: float, rng: np.random.Generator) -> Metrics:
        """Train imitation and critic on the observations of a rollout."""
        self.optimizer.set_learning_rate(learning_rate)
        history: list[Metrics] = []
        for _ in range(self.config.novelty_epochs):
            order = torch.from_numpy(rng.permutation(len(obs))).to(obs.device)
            for rows in order.tensor_split(max(1, round(len(obs) / self.rows))):
                errors, values = self.networks.errors(obs[rows]), self.networks.value(obs[rows])
                loss, metrics = novelty_loss(errors, values, returns[rows])
                self.optimizer.step(loss)
                history.append(metrics)
        return mean_metrics(history)

    def state_dict(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"networks": self.networks, "optimizer": self.optimizer, "scale": self.scale}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.networks.load_state_dict(state["networks"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scale.load_state_dict(state["scale"])


class NoveltyLearner(Learner[Config]):
    """A learner with the settings `NoveltyConfig`, which may carry the bonus.

    It calls `seek_novelty` on each batch before it uses the advantages.
    """

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings: Any = self.config
        rows = getattr(settings, "minibatch_size", settings.num_steps * self.num_envs)
        self.novelty = NoveltyBonus(self, rows) if settings.novelty_coef else None

    def seek_novelty(self, batch: PolicyBatch, rollout: Rollout) -> Metrics:
        """Add the advantages of novelty to the batch and train what measures it; without the bonus, do nothing."""
        if self.novelty is None:
            return {}
        settings: Any = self.config
        returns, metrics = self.novelty.add(batch, rollout, settings.gae_lambda)
        rate = self.scheduled(settings.novelty_learning_rate)
        return metrics | self.novelty.fit(batch.obs, returns, rate, self.streams["novelty_minibatches"])
