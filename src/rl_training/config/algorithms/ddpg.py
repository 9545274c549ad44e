"""Settings of DDPG."""

from __future__ import annotations

from rl_training.config.algorithms.common.actor_critic import DeterministicActorConfig


class DDPGConfig(DeterministicActorConfig):
    """DDPG adds no settings to those of its family."""
