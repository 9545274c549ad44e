"""Settings of state-dependent exploration (gSDE), which PPO, A2C, SAC and TQC share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_training.config.base import PositiveInteger, StrictModel

# Its default differs: a policy that is not squashed needs wider noise.
NoiseLogStd = Annotated[
    float,
    Field(ge=-20, le=2, description="Initial logarithm of the standard deviation of each entry of the noise matrix."),
]


class StateNoiseConfig(StrictModel):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    state_dependent_noise: bool = Field(
        False, description="Explore Box actions by noise that is a lasting function of the state (gSDE)."
    )
    noise_interval: PositiveInteger | None = Field(
        8, description="Steps of an environment until its noise is drawn anew; null draws it once per episode."
    )
    noise_log_std: NoiseLogStd = 0.0

    def without_effect(self) -> frozenset[str]:
        others: frozenset[str] = super().without_effect()  # type: ignore[misc]
        return others if self.state_dependent_noise else others | {"noise_interval", "noise_log_std"}
