"""Settings of TD3."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.algorithms.actor_critic import DeterministicActorConfig


class TD3Config(DeterministicActorConfig):
    policy_delay: int = Field(2, ge=1, description="Critic updates per update of the actor and of the target networks.")
    target_noise: float = Field(
        0.2, ge=0, description="Standard deviation of the noise on target actions (target policy smoothing)."
    )
    target_noise_clip: float = Field(0.5, ge=0, description="Largest absolute noise on a target action.")
