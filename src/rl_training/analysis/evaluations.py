"""The evaluations of a run, read from its metric stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines

LARGEST_STEP = 2**63
LARGEST_SCORE = 1e15  # beyond it a number was forged; below it, sums and squares stay finite


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: the mean and the standard deviation of the returns of its episodes."""

    env_steps: int
    mean: float
    std: float
    episodes: int
    is_result: bool = False  # the second one at the last step, on the seeds of `rl-training eval`

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 if a single episode says nothing about its spread."""
        return self.std / math.sqrt(self.episodes - 1) if self.episodes > 1 else 0.0


@dataclass(frozen=True)
class Scores:
    """`last` is the mean return of the last evaluation; `best` the highest of those that choose the best agent."""

    last: float | None = None
    best: float | None = None
    steps: int | None = None  # of the last evaluation


def read_evaluations(run_dir: Path) -> list[Evaluation]:
    """All evaluations in the order of the run. A damaged line is skipped: it must not hide the others."""
    found: list[Evaluation] = []
    for line in iterate_lines(run_dir / METRICS_FILE, skip_damaged=True, containing=b'"eval_mean_return"'):
        steps, mean = line.get("env_steps"), _number(line.get("eval_mean_return"))
        if line.get("kind") != "eval" or type(steps) is not int or not 0 <= steps < LARGEST_STEP or mean is None:
            continue
        episodes = line.get("eval_episodes")
        std = _number(line.get("eval_std_return"))
        found.append(
            Evaluation(
                steps,
                mean,
                max(0.0, std or 0.0),
                episodes if type(episodes) is int and 0 < episodes < LARGEST_STEP else 1,
                is_result=bool(found) and found[-1].env_steps == steps,
            )
        )
    return found


def read_scores(run_dir: Path) -> Scores:
    """The last and the best score of a run, for a listing."""
    evaluations = read_evaluations(run_dir)
    if not evaluations:
        return Scores()
    competing = [each.mean for each in evaluations if not each.is_result]
    return Scores(evaluations[-1].mean, max(competing), evaluations[-1].env_steps)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) <= LARGEST_SCORE else None
