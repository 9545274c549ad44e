"""Settings of return distributions over fixed atoms, for C51 and D4PG."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_training.errors import ConfigError

NumAtoms = Annotated[int, Field(ge=2, description="Values of a return distribution, evenly spaced over its support.")]
SupportLow = Annotated[
    float,
    Field(description="Lowest return that can be learned; in scaled rewards, discounted, all of them should fit."),
]
SupportHigh = Annotated[
    float, Field(description="Highest return that can be learned; targets beyond the support are clipped to it.")
]


def check_support(low: float, high: float) -> None:
    """Refuse a support without width."""
    if low >= high:
        raise ConfigError(
            f"algo_kwargs.support_low: {low} must be below support_high ({high}), "
            f"and returns, discounted and scaled, should lie between them",
            key="algo_kwargs.support_low",
        )
