"""A run's learning curve, read from its metric stream, and what a table says about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines

Numbers = NDArray[np.float64]
LATE = 1.001  # evaluations are due at the first rollout behind a step: one that is so little late belongs to it


@dataclass(frozen=True)
class Curve:
    """Evaluations on the way: env steps, mean return, and wall seconds of the run at that moment."""

    steps: Numbers
    returns: Numbers
    seconds: Numbers

    def until(self, step: float) -> Curve:
        kept = self.steps <= step * LATE
        return Curve(self.steps[kept], self.returns[kept], self.seconds[kept])

    def first_at(self, threshold: float) -> int | None:
        """Index of the first evaluation that reached the threshold."""
        reached = np.flatnonzero(self.returns >= threshold)
        return int(reached[0]) if reached.size else None

    def area(self) -> float:
        """Mean height under the curve from step 0 to its end; the first value holds before the first evaluation."""
        if not self.steps.size:
            return float("nan")
        steps = np.concatenate([[0.0], self.steps])
        returns = np.concatenate([self.returns[:1], self.returns])
        return float(np.sum(np.diff(steps) * (returns[1:] + returns[:-1]) / 2) / steps[-1])


def read_curve(run_dir: Path) -> Curve:
    """One point per evaluation. The last step is evaluated twice, the second time on the seeds of the result: the
    first counts, as at every other step. An evaluation has the clock of the line of training before it."""
    steps: list[float] = []
    returns: list[float] = []
    seconds: list[float] = []
    clock = 0.0
    # A table of many runs is worth more than one damaged evaluation of one of them.
    for line in iterate_lines(run_dir / METRICS_FILE, skip_damaged=True):
        try:
            if line.get("kind") == "train":
                clock = float(line.get("wall_seconds") or clock)
            elif line.get("kind") == "eval" and line.get("eval_mean_return") is not None:
                step, value = float(line["env_steps"]), float(line["eval_mean_return"])
                if not steps or step > steps[-1]:
                    steps.append(step)
                    returns.append(value)
                    seconds.append(clock)
        except (KeyError, TypeError, ValueError):
            continue  # damaged, and JSON all the same
    return Curve(np.array(steps), np.array(returns), np.array(seconds))


def on_grid(curves: list[Curve], points: int = 200) -> tuple[Numbers, Numbers]:
    """Curves of several seeds at common steps, [points] and [seeds, points], from the last begin to the first end."""
    curves = [curve for curve in curves if curve.steps.size]
    if not curves:
        return np.zeros(0), np.zeros((0, 0))
    start, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    grid = np.linspace(start, max(start, end), points if end > start else 1)
    return grid, np.stack([np.interp(grid, curve.steps, curve.returns) for curve in curves])
