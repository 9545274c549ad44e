"""Settings of TD7."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_training.config.algorithms.common.actor_critic import ActorLearningRate, CriticLearningRate, NoisyActorConfig
from rl_training.config.algorithms.td3 import PolicyDelay, TargetNoise, TargetNoiseClip
from rl_training.config.base import NonNegativeSchedule, UnitSchedule, constant


class TD7Config(NoisyActorConfig):
    actor_learning_rate: ActorLearningRate = constant(3e-4)
    critic_learning_rate: CriticLearningRate = constant(3e-4)
    embedding_learning_rate: NonNegativeSchedule = Field(
        constant(3e-4), description="Learning rate of the embeddings of states and actions."
    )
    embedding_size: int = Field(256, ge=1, le=65_536, description="Size of the embeddings of states and actions.")
    copy_every: int = Field(
        250, ge=1, description="Updates between two copies of all networks to their targets and to the fixed embedding."
    )
    policy_delay: PolicyDelay = 2
    target_noise: TargetNoise = 0.2
    target_noise_clip: TargetNoiseClip = 0.5
    prioritized: bool = Field(True, description="Sample transitions in proportion to their error (prioritized replay).")
    priority_exponent: float = Field(
        0.4, ge=0, le=1, description="How strongly priorities affect sampling; 0 samples uniformly."
    )
    importance_exponent: UnitSchedule = Field(
        constant(0.0), description="How far importance weights correct prioritized sampling; 1 corrects it fully."
    )
    priority_floor: float = Field(
        1.0,
        ge=0,
        description="Errors below this count as this in the priorities (LAP); 0 adds priority_epsilon instead.",
    )
    priority_refresh: int = Field(
        250,
        ge=0,
        description="Updates after which new transitions get the highest priority still stored; 0 means highest ever.",
    )
    evaluated_policy: Literal["kept", "last"] = Field(
        "kept", description="Policy to evaluate and predict with: the best one of the training episodes, or the last."
    )
    trial_episodes: int = Field(1, ge=1, description="Episodes that a policy acts in unchanged before it is judged.")
    late_trial_episodes: int = Field(
        20, ge=1, description="Episodes of a trial after late_trials_after updates; the worst of them decides."
    )
    late_trials_after: int = Field(750_000, ge=0, description="Updates after which trials have late_trial_episodes.")
