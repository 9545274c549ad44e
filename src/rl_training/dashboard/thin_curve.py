"""Long curves in few points: the lowest and the highest value of each bin stay, so that no peak is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rl_training.analysis.curves import Numbers


def thin(steps: Numbers, values: Numbers, points: int) -> tuple[Numbers, Numbers]:
    """At most `points` points of a curve, in their order: the first, the last, and the extremes of equal bins.

    A value that is not finite is a gap. A bin with nothing but gaps stays one.
    """
    kept = thinned_places(values, points)
    return steps[kept], values[kept]


def thinned_places(values: Numbers, points: int) -> np.ndarray:
    """The places of the values that stay. Everything stays if there are no more than `points` values."""
    if values.size <= max(points, 4):
        return np.arange(values.size)
    bins = max(1, (points - 2) // 2)
    inner = values[1:-1]
    edges = np.linspace(0, inner.size, bins + 1).astype(np.int64)
    low = np.where(np.isfinite(inner), inner, np.inf)
    high = np.where(np.isfinite(inner), inner, -np.inf)
    kept = [0, values.size - 1]
    for start, stop in pairwise(edges):
        if stop > start:
            kept += [1 + start + int(low[start:stop].argmin()), 1 + start + int(high[start:stop].argmax())]
    return np.unique(kept)
