"""Learners that learn from replay, by family: what an algorithm adds is its networks, its losses and its step.

ReplayLearner           one gradient step on one batch            NAF
  QLearner              epsilon-greedy over discrete actions      DQN, Ape-X DQN, C51, QR-DQN, IQN, Rainbow
  ActorCriticLearner    an actor, critics, and their targets      MPO
    NoisyActorCritic    ... whose actor is deterministic          DDPG, TD3, D4PG, TD7; with Ape-X: D4PG, TD3
    SoftActorCritic     ... whose actor has a bonus for entropy   SAC, TQC, CrossQ, REDQ: soft_actor_critic.py
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.dead_units import some_rows
from rl_training.algorithms.common.exploration import epsilon_greedy, make_action_noise
from rl_training.algorithms.common.learner import Action, Learner, UpdateResult
from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.optimizer import Optimizer, vectors_of
from rl_training.algorithms.common.random_shift import RandomShift
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.config.algorithms.common.actor_critic import ActorCriticConfig, NoisyActorConfig
from rl_training.config.algorithms.common.q_learning import QLearningConfig
from rl_training.config.base import ReplayConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces

Config = TypeVar("Config", bound=ReplayConfig)
QConfig = TypeVar("QConfig", bound=QLearningConfig)
ActorConfig = TypeVar("ActorConfig", bound=ActorCriticConfig)
NoisyConfig = TypeVar("NoisyConfig", bound=NoisyActorConfig)
Model = TypeVar("Model", bound=nn.Module)


class ReplayLearner(Learner[Config]):
    """Each update is one gradient step on one batch."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.gradient_step = self.compiled(self._gradient_step, rows=self.config.batch_size)

    @abstractmethod
    def _gradient_step(self, batch: Transitions, *inputs: Any) -> tuple[Metrics, Tensor]:
        """Change the networks; return metrics and the error of each row, which prioritized replay samples by.

        Tensor work only, so that it can be compiled: all that is drawn or decided outside comes in as `inputs`.
        """

    def step_inputs(self, batch: Transitions) -> tuple[Any, ...]:
        """What a gradient step needs beside its batch: tensors of noise, and switches that are true or false."""
        return ()

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        return Action(self.model.act(obs, self.streams["exploration"] if explore else None))

    def update(self, batch: Transitions) -> UpdateResult:
        batch = self.augmented(batch.to(self.device))
        self.set_learning_rates()
        metrics, errors = self.gradient_step(batch, *self.step_inputs(batch))
        self.updates += 1
        metrics |= self.probe(lambda: self.forward(some_rows(batch.obs), some_rows(batch.actions)))
        return UpdateResult(metrics, errors.cpu().numpy() if self.config.prioritized else None)

    def augmented(self, batch: Transitions) -> Transitions:
        """The batch that a gradient step sees."""
        return batch

    def forward(self, obs: Tensor, actions: Tensor) -> None:
        """Call the networks that learn."""
        self.model.q_values(obs, actions)

    def normal_noise(self, stream: str, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers of a random stream."""
        return torch.from_numpy(self.streams[stream].standard_normal(shape, dtype=np.float32)).to(self.device)


class QLearner(ReplayLearner[QConfig]):
    """Takes the action of the highest value, or with probability `exploration` a random one.

    Without `tau`, its target network is replaced every `target_update_every` env steps.
    """

    optimizer: Optimizer
    target: TargetNetwork[Any]

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        greedy = self.model.greedy_actions
        if not explore:
            return Action(greedy(obs))
        epsilon, num_actions = self.exploration_rate(), self.spaces.action_sizes[0]
        masks = self.spaces.action_masks(obs)
        return Action(epsilon_greedy(greedy, obs, num_actions, epsilon, self.streams["exploration"], masks))

    def update(self, batch: Transitions) -> UpdateResult:
        result = super().update(batch)
        if self.config.tau is None:
            self.target.copy_every(self.env_steps, self.config.target_update_every)
        result.metrics["exploration"] = torch.tensor(self.exploration_rate(), device=self.device)
        result.metrics["learning_rate"] = self.scheduled_tensor(self.config.learning_rate)
        return result

    def exploration_rate(self) -> float:
        """The probability of a random action, now."""
        return self.scheduled(self.config.exploration)

    def forward(self, obs: Tensor, actions: Tensor) -> None:
        self.model.q_values(obs)


class ActorCriticLearner(ReplayLearner[ActorConfig], Generic[ActorConfig, Model]):
    """A model with a `policy_network`; its other parameters are the critic's. Each half has an optimizer.

    Among the settings are `actor_learning_rate` and `critic_learning_rate`.
    """

    model: Model
    has_target: ClassVar[bool] = True
    fast_products: ClassVar[bool] = True  # a step on 256 wide layers takes two thirds of the time

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.model = self.build(self.make_model)
        if self.has_target:
            self.target: TargetNetwork[Model] = TargetNetwork(self.model)
        pixels = self.config.random_shift
        self.random_shift = RandomShift(spaces, pixels) if pixels else None
        named = [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        actor = [parameter for name, parameter in named if name.startswith("policy_network.")]
        critic = [parameter for name, parameter in named if not name.startswith("policy_network.")]
        settings = self.optimizer_settings()
        self.actor_optimizer: Optimizer = self.add_optimizer(actor, self.config.actor_learning_rate, **settings)
        self.critic_optimizer: Optimizer = self.add_optimizer(critic, self.config.critic_learning_rate, **settings)

    def optimizer_settings(self) -> dict[str, Any]:
        """What both optimizers have in common."""
        return {"weight_decay": self.config.weight_decay}

    def forward(self, obs: Tensor, actions: Tensor) -> None:
        model: Any = self.model
        model.q_values(obs, actions)
        model.actor(obs)

    def acting_tensors(self) -> list[Tensor]:
        """The actor and the encoder that it shares: no action depends on a critic."""
        encoder: Any = getattr(self.model, "encoder", None)
        shared = [] if encoder is None else vectors_of(encoder.parameters())
        return [self.actor_optimizer.vector, *shared, *self.model.buffers()]

    def augmented(self, batch: Transitions) -> Transitions:
        if self.random_shift is None:
            return batch
        rng = self.streams["random_shift"]
        return replace(batch, obs=self.random_shift(batch.obs, rng), next_obs=self.random_shift(batch.next_obs, rng))

    @abstractmethod
    def make_model(self) -> Model:
        """The algorithm's networks, for `self.spaces` and `self.model_config`."""

    def actor_step(self, loss: Tensor) -> Metrics:
        """One gradient step of the actor."""
        return {"actor_grad_norm": self.actor_optimizer.step(loss), "actor_loss": loss.detach()}


class NoisyActorCritic(ActorCriticLearner[NoisyConfig, Model]):
    """A deterministic actor that explores by noise on its actions: `noise_type` and `exploration_noise`."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self.noise = make_action_noise(self.config.noise_type, self.config.exploration_noise)

    def act(
        self, obs: np.ndarray, *, explore: bool, episode_starts: np.ndarray | None = None, memory: Any = None
    ) -> Action:
        model: Any = self.model
        actions = model.act(obs)
        if explore:
            actions = self.noise.apply(actions, self.streams["exploration"], episode_starts)
        return Action(actions)
