"""Statistics for few seeds: the interquartile mean, the probability of improvement and their intervals.

Both are those of Agarwal et al. 2021 (arXiv:2108.13264).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

REPETITIONS = 20_000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    low: float
    high: float


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean without the lowest and highest quarter of the scores, each rounded down."""
    return float(_interquartile_means(np.asarray(scores, np.float64).reshape(1, -1))[0])


def _interquartile_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    count = rows.shape[1]
    cut = count // 4
    middle = np.partition(rows, (cut, count - 1 - cut), axis=1)[:, cut : count - cut]
    return np.asarray(middle.mean(axis=1))


def bootstrap_interval(
    scores: ArrayLike, *, repetitions: int = REPETITIONS, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """Percentile interval of the interquartile mean; `scores` is [runs] of one task or [runs, tasks].

    The bootstrap is stratified: runs are resampled with replacement within each task. It is seeded, so equal scores
    give equal intervals.
    """
    matrix = np.asarray(scores, np.float64)
    matrix = matrix.reshape(-1, 1) if matrix.ndim == 1 else matrix
    runs, tasks = matrix.shape
    rows = np.random.default_rng(seed).integers(runs, size=(repetitions, runs, tasks))
    samples = np.take_along_axis(matrix[None], rows, axis=1).reshape(repetitions, -1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(_interquartile_means(samples), [tail, 1 - tail])
    return Interval(float(low), float(high))


def probability_of_improvement(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> float:
    """How often a run of `second` scores higher than a run of `first`, averaged over tasks; a tie counts as a half.

    Both are lists with one array of scores per task; the arrays may differ in length.
    """
    return float(np.mean([_wins(one, two).mean() for one, two in zip(first, second, strict=True)]))


def improvement_interval(
    first: Sequence[ArrayLike],
    second: Sequence[ArrayLike],
    *,
    repetitions: int = REPETITIONS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """Percentile interval of `probability_of_improvement`; runs are resampled within each group and task."""
    random = np.random.default_rng(seed)
    total = np.zeros(repetitions)
    for one, two in zip(first, second, strict=True):
        wins = _wins(one, two)
        # How often each run is drawn says as much as the runs themselves, and needs no array of all pairs.
        drawn = [random.multinomial(count, np.full(count, 1 / count), size=repetitions) for count in wins.shape]
        total += np.sum((drawn[0] @ wins) * drawn[1], axis=1) / wins.size
    tail = (1 - confidence) / 2
    low, high = np.quantile(total / len(first), [tail, 1 - tail])
    return Interval(float(low), float(high))


def _wins(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """[runs of first, runs of second]: 1 where the second is higher, one half where they are equal."""
    one, two = np.asarray(first, np.float64)[:, None], np.asarray(second, np.float64)[None]
    return np.asarray((two > one) + 0.5 * (two == one))


def standard_error(scores: ArrayLike) -> float:
    """Standard error of the mean; NaN for a single run."""
    values = np.asarray(scores, np.float64)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")


def score_text(value: float | None) -> str:
    """Format a score for a table; a dash if it is unknown or not finite."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
