"""Settings of SAC."""

from __future__ import annotations

from rl_training.config.algorithms.common.actor_critic import SoftActorCriticConfig
from rl_training.config.algorithms.common.state_exploration import NoiseLogStd, StateNoiseConfig
from rl_training.config.base import Tau


class SACConfig(StateNoiseConfig, SoftActorCriticConfig):
    tau: Tau = 0.005
    noise_log_std: NoiseLogStd = -3.0
