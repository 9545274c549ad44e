"""What SAC, TQC, CrossQ and REDQ share: an actor that earns a bonus for entropy, at a temperature that adapts."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.common.metrics import Metrics
from rl_training.algorithms.common.replay_learner import ActorCriticLearner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.common.actor_critic import SoftActorCriticConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces

SoftConfig = TypeVar("SoftConfig", bound=SoftActorCriticConfig)
Model = TypeVar("Model", bound=nn.Module)


def temperature_loss(log_temperature: Tensor, log_probs: Tensor, target_entropy: float) -> Tensor:
    """-log(alpha) mean(log pi + H): alpha rises while the policy's entropy is below H."""
    return -log_temperature * (log_probs.detach() + target_entropy).mean()


class Temperature(nn.Module):
    """The temperature alpha, stored as its logarithm."""

    def __init__(self, initial: float):
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))

    def value(self) -> Tensor:
        return self.log.detach().exp()


class SoftActorCritic(ActorCriticLearner[SoftConfig, Model]):
    """A squashed Gaussian actor, critics, and the temperature that weighs entropy against reward."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        settings = self.config
        automatic = settings.temperature == "auto"
        initial = settings.initial_temperature if automatic else float(settings.temperature)
        self.temperature = self.build(lambda: Temperature(initial))
        self.temperature_optimizer = None
        if automatic:
            self.temperature_optimizer = self.add_optimizer(
                self.temperature, settings.temperature_learning_rate, max_grad_norm=None
            )
        entropy = settings.target_entropy
        self.target_entropy = -float(spaces.action_dim) if entropy == "auto" else entropy

    def soft_actor_step(self, loss: Tensor, log_probs: Tensor, temperature: Tensor) -> Metrics:
        """One gradient step of the actor, and one of the temperature if it is learned."""
        metrics = self.actor_step(loss)
        metrics |= {"entropy": -log_probs.detach().mean(), "temperature": temperature.squeeze()}
        if self.temperature_optimizer is not None:
            loss_of_temperature = temperature_loss(self.temperature.log, log_probs, self.target_entropy).sum()
            self.temperature_optimizer.step(loss_of_temperature)
            metrics["temperature_loss"] = loss_of_temperature.detach()
        return metrics

    def step_inputs(self, batch: Transitions) -> tuple[Tensor, ...]:
        """Noise for the actions at the next observations, and for those at the observations."""
        shape = batch.actions.shape
        return self.normal_noise("policy_noise", shape), self.normal_noise("policy_noise", shape)
