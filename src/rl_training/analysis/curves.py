"""Learning curves, read from the metric streams of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines

Numbers = NDArray[np.float64]
LARGEST_NUMBER = 1e15  # beyond it a number was forged; below it, sums and squares stay finite
MOST_METRICS = 1000
LATE = 1.001  # an evaluation waits for the end of its rollout, so a step this little late still counts


@dataclass(frozen=True)
class Curve:
    """Evaluations during training: env steps, mean returns, and wall-clock seconds since the start of the run."""

    steps: Numbers
    returns: Numbers
    seconds: Numbers

    def until(self, step: float, slack: float = 0.0) -> Curve:
        """The part up to a step. `slack` is the length of a rollout, by which an evaluation may be late."""
        until = self.steps <= max(step * LATE, step + slack)
        return Curve(self.steps[until], self.returns[until], self.seconds[until])

    def first_at(self, threshold: float) -> int | None:
        """Index of the first evaluation at or above the threshold."""
        reached = np.flatnonzero(self.returns >= threshold)
        return int(reached[0]) if reached.size else None

    def area(self) -> float:
        """Mean height of the curve from step 0 to its end; before the first evaluation, its value is used."""
        if not self.steps.size:
            return float("nan")
        steps = np.concatenate([[0.0], self.steps])
        returns = np.concatenate([self.returns[:1], self.returns])
        return float(np.sum(np.diff(steps) * (returns[1:] + returns[:-1]) / 2) / steps[-1])


def read_curve(run_dir: Path) -> Curve:
    """Read one point per evaluation. The last step is evaluated twice, the second time for the result of the run; as at
    every other step, the first one counts. Its time is that of the preceding training line."""
    steps: list[float] = []
    returns: list[float] = []
    seconds: list[float] = []
    clock = 0.0
    # One damaged line must not prevent a table of many runs.
    for line in iterate_lines(run_dir / METRICS_FILE, skip_damaged=True):
        try:
            if line.get("kind") == "train":
                clock = float(line.get("wall_seconds") or clock)
            elif line.get("kind") == "eval" and line.get("eval_mean_return") is not None:
                step, value = float(line["env_steps"]), float(line["eval_mean_return"])
                if math.isfinite(step + value + clock) and (not steps or step > steps[-1]):
                    steps.append(step)
                    returns.append(value)
                    seconds.append(clock)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # valid JSON, but damaged
    return Curve(np.array(steps), np.array(returns), np.array(seconds))


def read_series(run_dir: Path, metrics: Sequence[str]) -> tuple[dict[str, Curve], list[str]]:
    """The curves of any metrics of a run over env steps, and the names of all its metrics.

    Of several values at one step the first counts, as in `read_curve`. A run without a metric has an empty curve.
    """
    points: dict[str, list[tuple[float, float]]] = {metric: [] for metric in metrics}
    names: dict[str, None] = {}
    for line in iterate_lines(run_dir / METRICS_FILE, skip_damaged=True):
        step = line.get("env_steps")
        if not _is_number(step):
            continue
        names.update((name, None) for name, value in line.items() if name not in names and _is_number(value))
        if len(names) > MOST_METRICS:
            names = dict.fromkeys(list(names)[:MOST_METRICS])
        for metric in metrics:
            value = line.get(metric)
            if _is_number(value) and (not points[metric] or step > points[metric][-1][0]):
                points[metric].append((float(step), float(value)))
    curves = {}
    for metric, pairs in points.items():
        array = np.array(pairs, np.float64).reshape(-1, 2)
        curves[metric] = Curve(array[:, 0], array[:, 1], np.zeros(len(pairs)))
    return curves, [name for name in names if name != "env_steps"]


def _is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) in (int, float) and abs(value) <= LARGEST_NUMBER


def middle_half(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The lower quartile, the median and the upper quartile of `values` [seeds, points] at each point."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return low, middle, high


def on_grid(curves: list[Curve], points: int = 200) -> tuple[Numbers, Numbers]:
    """Interpolate curves at common steps: [points] and [seeds, points], where all curves have values."""
    curves = [curve for curve in curves if curve.steps.size]
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    start, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    grid = np.linspace(start, max(start, end), points if end > start else 1)
    return grid, np.stack([np.interp(grid, curve.steps, curve.returns) for curve in curves])
