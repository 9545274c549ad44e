"""The networks of MPO: a Gaussian policy over normalized actions and a critic."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.config.train_config import ModelConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_continuous import LOG_STD_MAX, LOG_STD_MIN, ContinuousActorCritic


class MLPMPOModel(ContinuousActorCritic):
    """The mean is in [-1, 1]. Samples may be outside; the critic sees them clipped, as the environment does.

    Samples have no tanh: MPO bounds mean and covariance separately and needs both in closed form.
    """

    def __init__(self, spaces: Spaces, config: ModelConfig):
        super().__init__(spaces, config, num_critics=1, actor_outputs=2 * spaces.action_dim, tanh_actor=False)
        self.initial_log_std = config.initial_log_std

    def actor(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-std of the policy, each [B, A]."""
        mean, log_std = self.policy_outputs(obs).split(self.action_dim, -1)
        return mean.tanh(), (log_std + self.initial_log_std).clamp(LOG_STD_MIN, LOG_STD_MAX)

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values [1, B] of actions [B, A], which may be out of bounds."""
        return super().q_values(obs, actions.clamp(-1.0, 1.0))

    def q_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values [B], or [S, B] for S actions in each of B states: obs [B, D], actions [S, B, A]."""
        features = self._input(obs).expand(*actions.shape[:-1], -1)
        values: Tensor = self.critics[0](torch.cat([features, actions.clamp(-1.0, 1.0)], -1)).squeeze(-1)
        return values

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Sampled actions clipped to the bounds, or the mean if `rng` is None."""
        outputs = self.policy_outputs_numpy(obs)
        mean: np.ndarray = np.tanh(outputs[:, : self.action_dim])
        if rng is None:
            return mean
        log_std = np.clip(outputs[:, self.action_dim :] + np.float32(self.initial_log_std), LOG_STD_MIN, LOG_STD_MAX)
        actions: np.ndarray = mean + np.exp(log_std) * rng.standard_normal(mean.shape, dtype=np.float32)
        return actions.clip(-1.0, 1.0)
