"""Settings of TD3."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_training.config.algorithms.common.actor_critic import DeterministicActorConfig

PolicyDelay = Annotated[
    int, Field(ge=1, description="Critic updates per update of the actor and of the target networks.")
]
TargetNoise = Annotated[
    float, Field(ge=0, description="Standard deviation of the noise on target actions (target policy smoothing).")
]
TargetNoiseClip = Annotated[float, Field(ge=0, description="Largest absolute noise on a target action.")]


class TD3Config(DeterministicActorConfig):
    policy_delay: PolicyDelay = 2
    target_noise: TargetNoise = 0.2
    target_noise_clip: TargetNoiseClip = 0.5
