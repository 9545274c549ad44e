"""Published learning curves: a few points each, stored in a manifest and validated on load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pydantic import Field

from rl_training.config.base import StrictModel
from rl_training.config.messages import printable
from rl_training.errors import ConfigError


class CurveText(StrictModel):
    """A curve as written in a manifest."""

    source: str = Field(min_length=1, description="Origin of the curve, in a word or two.")
    protocol: str = Field(min_length=1, description="How it was measured: a key of `protocols`.")
    seeds: int | None = Field(None, ge=1, description="Number of runs per point; null if unknown.")
    uncounted_steps: int = Field(
        0, ge=0, description="Env steps before its step 0, such as random warm-up; added to all steps."
    )
    points: list[list[float]] = Field(
        min_length=2, description="[steps, score] or [steps, score, standard deviation over runs], by rising steps."
    )


class Published(NamedTuple):
    """A score at one env step, and its standard error if known."""

    score: float
    standard_error: float | None


@dataclass(frozen=True)
class PublishedCurve:
    """Points by env steps, counted from the first step of the environment, including random warm-up."""

    name: str
    source: str
    protocol: str
    steps: tuple[float, ...]
    scores: tuple[float, ...]
    standard_errors: tuple[float, ...] | None

    def at(self, step: float) -> Published | None:
        """Interpolate linearly; None outside the published range."""
        if not self.steps[0] <= step <= self.steps[-1]:
            return None
        score = float(np.interp(step, self.steps, self.scores))
        if self.standard_errors is None:
            return Published(score, None)
        return Published(score, float(np.interp(step, self.steps, self.standard_errors)))


def checked_curve(name: str, text: CurveText, where: str) -> PublishedCurve:
    """Check what single fields cannot: equal numbers of values per point, and rising steps."""
    before = -1.0
    for number, point in enumerate(text.points, start=1):
        at = f"{where}: points: point {number}"
        if len(point) not in (2, 3) or len(point) != len(text.points[0]):
            raise ConfigError(
                f"{at} {printable(point)} must be [steps, score] or [steps, score, deviation], like all others"
            )
        if point[0] < 0:
            raise ConfigError(f"{at} is at step {point[0]:,.0f}, steps must be at least 0")
        if point[0] <= before:
            raise ConfigError(f"{at} is at step {point[0]:,.0f} after {before:,.0f}, steps must rise")
        if len(point) == 3 and point[2] < 0:
            raise ConfigError(f"{at} has a deviation of {point[2]:g}, must be at least 0")
        before = point[0]
    deviations = [point[2] for point in text.points if len(point) == 3]
    errors = None
    if deviations and text.seeds is not None:
        errors = tuple(deviation / text.seeds**0.5 for deviation in deviations)
    steps = tuple(point[0] + text.uncounted_steps for point in text.points)
    return PublishedCurve(name, text.source, text.protocol, steps, tuple(p[1] for p in text.points), errors)
