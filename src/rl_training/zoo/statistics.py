"""Few seeds, honestly: the interquartile mean and its interval (Agarwal et al. 2021, arXiv:2108.13264)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

REPETITIONS = 20_000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    low: float
    high: float


def interquartile_mean(scores: ArrayLike) -> float:
    """Mean of what is left when a quarter of all scores, rounded down, is cut off at each end."""
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

    Stratified: each task's runs are drawn anew, with replacement, among themselves. Seeded, so that the same
    scores have the same interval.
    """
    matrix = np.asarray(scores, np.float64)
    matrix = matrix.reshape(-1, 1) if matrix.ndim == 1 else matrix
    runs, tasks = matrix.shape
    chosen = np.random.default_rng(seed).integers(runs, size=(repetitions, runs, tasks))
    drawn = np.take_along_axis(matrix[None], chosen, axis=1).reshape(repetitions, -1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(_interquartile_means(drawn), [tail, 1 - tail])
    return Interval(float(low), float(high))


def standard_error(scores: ArrayLike) -> float:
    """Of the mean; not a number for a single run."""
    values = np.asarray(scores, np.float64)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")


def score_text(value: float | None) -> str:
    """As tables show it; a dash for what is unknown or not a number."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
