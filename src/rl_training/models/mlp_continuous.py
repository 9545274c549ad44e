"""Actors and critics for continuous control with actions normalized to [-1, 1]."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.distributions import squashed_gaussian
from rl_training.models.encoders.encoder import build_encoder
from rl_training.models.encoders.normalizer import NormalizingModel, make_normalizer
from rl_training.models.layers.exploration_head import noise_head, with_state_noise
from rl_training.models.mlp import ActingForward, acting_forward, mlp

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class ContinuousActorCritic(NormalizingModel):
    """Base class of the models below and of MPO: a policy network and an ensemble of critics Q_i(s, a).

    Actor and critics share an encoder of images. Only the loss of the critics trains it, as in arXiv:2004.13649: the
    actor would pull the features towards what it already does.
    """

    def __init__(
        self,
        spaces: Spaces,
        config: ModelConfig,
        *,
        num_critics: int,
        actor_outputs: int,
        tanh_actor: bool,
        critic_outputs: int = 1,
    ):
        super().__init__()
        self.encoder = build_encoder(spaces, config)
        size = self.encoder.output_size
        self.action_dim = spaces.action_dim
        self.normalizer = make_normalizer(spaces, config)
        self.policy_network = self.make_actor(size, actor_outputs, config, tanh_actor)
        self.critics = nn.ModuleList(
            [
                self.make_critic(size + spaces.action_dim, critic_outputs, config.for_critic())
                for _ in range(num_critics)
            ]
        )
        self._acting: ActingForward | None = None

    def make_actor(self, inputs: int, outputs: int, config: ModelConfig, tanh: bool) -> nn.Sequential:
        return mlp(inputs, outputs, config, tanh_output=tanh)

    def make_critic(self, inputs: int, outputs: int, config: ModelConfig) -> nn.Sequential:
        return mlp(inputs, outputs, config)

    def _input(self, obs: Tensor) -> Tensor:
        """Features [B, input_size]: the observations, normalized and encoded."""
        features: Tensor = self.encoder(self._normalized(obs))
        return features

    def policy_outputs(self, obs: Tensor) -> Tensor:
        """Outputs of the policy network. Their gradient does not reach the encoder."""
        outputs: Tensor = self.policy_network(self._input(obs).detach())
        return outputs

    def critic_networks(self) -> list[nn.Sequential]:
        """The critics as networks that `run` takes."""
        return cast("list[nn.Sequential]", list(self.critics))

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values of all critics [critics, B]."""
        inputs = torch.cat([self._input(obs), actions], -1)
        return torch.stack([critic(inputs).squeeze(-1) for critic in self.critics])

    def q_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values of the first critic [B]."""
        values: Tensor = self.critics[0](torch.cat([self._input(obs), actions], -1)).squeeze(-1)
        return values

    def policy_outputs_numpy(self, obs: np.ndarray) -> np.ndarray:
        """Outputs of the policy network for acting: NumPy in and out, no autograd."""
        if self._acting is None:
            self._acting = acting_forward(self.policy_network, self.encoder, self.normalizer)
        return self._acting(obs)


class MLPDeterministicActorCritic(ContinuousActorCritic):
    """A tanh actor with one critic (DDPG) or two (TD3)."""

    def __init__(self, spaces: Spaces, config: ModelConfig, *, num_critics: int):
        super().__init__(spaces, config, num_critics=num_critics, actor_outputs=spaces.action_dim, tanh_actor=True)

    def actor(self, obs: Tensor) -> Tensor:
        """Deterministic actions [B, A] in [-1, 1]."""
        return self.policy_outputs(obs)

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.policy_outputs_numpy(obs)


class MLPSquashedGaussianActorCritic(ContinuousActorCritic):
    """A tanh-squashed Gaussian actor with a state-dependent standard deviation, and two critics (SAC).

    With `state_noise`, the initial log-std of a noise matrix, that deviation is the one of gSDE.
    """

    def __init__(
        self,
        spaces: Spaces,
        config: ModelConfig,
        *,
        num_critics: int = 2,
        critic_outputs: int = 1,
        state_noise: float | None = None,
    ):
        super().__init__(
            spaces,
            config,
            num_critics=num_critics,
            actor_outputs=spaces.action_dim if state_noise is not None else 2 * spaces.action_dim,
            tanh_actor=False,
            critic_outputs=critic_outputs,
        )
        if state_noise is not None:
            self.policy_network = with_state_noise(self.policy_network, state_noise, learn_features=True)
        self._latent: ActingForward | None = None

    def actor(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-std of the Gaussian before tanh, each [B, A]."""
        return self._mean_and_log_std(self.policy_outputs(obs))

    def _mean_and_log_std(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs.split(self.action_dim, -1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterized actions [B, A] and log pi [B] for standard normal `noise`."""
        mean, log_std = self.actor(obs)
        return squashed_gaussian(mean, log_std, noise)

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Sampled actions, or tanh of the mean if `rng` is None."""
        outputs = self.policy_outputs_numpy(obs)
        chosen = outputs[:, : self.action_dim]
        if rng is not None:
            log_std = np.clip(outputs[:, self.action_dim :], LOG_STD_MIN, LOG_STD_MAX)
            chosen = chosen + np.exp(log_std) * rng.standard_normal(chosen.shape, dtype=np.float32)
        actions: np.ndarray = np.tanh(chosen)
        return actions

    @property
    def noise_shape(self) -> tuple[int, int]:
        """Features and actions: the shape of the noise matrix of one env."""
        features, actions = noise_head(self.policy_network).log_std.shape
        return features, actions

    def explore(self, obs: np.ndarray, matrices: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions with state-dependent noise, for one matrix [F, A] of standard normal numbers per row."""
        head = noise_head(self.policy_network)
        if self._latent is None:
            self._latent = acting_forward(nn.Sequential(*list(self.policy_network)[:-1]), self.encoder, self.normalizer)
        features = self._latent(obs)
        mean = head.numpy(features)[:, : self.action_dim]
        return np.tanh(mean + head.noise_numpy(features, matrices)), {}
