"""Settings of return distributions over fixed atoms, for C51 and D4PG."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_training.config.base import StrictModel
from rl_training.errors import ConfigError

SupportLow = Annotated[
    float, Field(description="Lowest return the distribution can represent, in scaled and discounted rewards.")
]
SupportHigh = Annotated[
    float, Field(description="Highest return the distribution can represent; targets outside are clipped.")
]


class CategoricalConfig(StrictModel):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    num_atoms: int = Field(
        51, ge=2, le=10_000, description="Number of atoms of the return distribution, evenly spaced over its support."
    )
    support_low: SupportLow = -10.0
    support_high: SupportHigh = 10.0

    def check_support(self) -> None:
        """Refuse an empty support."""
        if self.support_low >= self.support_high:
            raise ConfigError(
                f"algo_kwargs.support_low: {self.support_low} must be below support_high ({self.support_high}); "
                f"scaled, discounted returns should lie between the two",
                key="algo_kwargs.support_low",
            )
