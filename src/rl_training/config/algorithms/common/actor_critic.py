"""Settings that replay algorithms with an actor and a critic share: the families of DDPG and of SAC, and MPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_training.config.base import NonNegativeSchedule, PositiveNumber, ReplayConfig, Tau, constant

ActorLearningRate = Annotated[NonNegativeSchedule, Field(description="Learning rate of the actor.")]
CriticLearningRate = Annotated[NonNegativeSchedule, Field(description="Learning rate of the critic.")]
ExplorationNoise = Annotated[
    float, Field(ge=0, description="Standard deviation of the action noise; actions span -1 to 1.")
]
InitialTemperature = Annotated[float, Field(gt=0, description="Initial value of a learned temperature.")]
TemperatureLearningRate = Annotated[
    NonNegativeSchedule, Field(description="Learning rate of the temperature, if it is learned.")
]
NumCritics = Annotated[int, Field(ge=1, le=1000, description="Number of critics.")]


class ActorCriticConfig(ReplayConfig):
    actor_learning_rate: ActorLearningRate = constant(3e-4)
    critic_learning_rate: CriticLearningRate = constant(3e-4)
    weight_decay: float = Field(
        0.0, ge=0, le=1, description="Decoupled weight decay of actor and critic (AdamW); 0 is Adam."
    )
    random_shift: int = Field(
        0, ge=0, le=64, description="Shift the images of a batch at random by up to this many pixels (DrQ); 0 is off."
    )


class NoisyActorConfig(ActorCriticConfig):
    """A deterministic actor that explores by noise on its actions."""

    actor_learning_rate: ActorLearningRate = constant(1e-3)
    critic_learning_rate: CriticLearningRate = constant(1e-3)
    exploration_noise: ExplorationNoise = 0.1
    noise_type: Literal["gaussian", "ou"] = Field(
        "gaussian", description="Independent Gaussian noise, or time-correlated Ornstein-Uhlenbeck noise (ou)."
    )


class DeterministicActorConfig(NoisyActorConfig):
    """What DDPG, TD3 and D4PG share: such an actor, with targets that follow softly."""

    tau: Tau = 0.005


class SoftActorCriticConfig(ActorCriticConfig):
    """What SAC, TQC, CrossQ and REDQ share: a stochastic actor with a bonus for entropy, weighted by a temperature."""

    temperature_learning_rate: TemperatureLearningRate = constant(3e-4)
    temperature: Literal["auto"] | PositiveNumber = Field(
        "auto", description="Weight of the entropy relative to the reward; auto learns it."
    )
    initial_temperature: InitialTemperature = 1.0
    target_entropy: Literal["auto"] | float = Field(
        "auto", description="Entropy that a learned temperature aims for; auto is minus the action dimension."
    )
