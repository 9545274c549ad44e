"""The evaluations of a run, read from its metric stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines

OF_EVALUATIONS = b'"eval_mean_return"'
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
    for line in iterate_lines(run_dir / METRICS_FILE, skip_damaged=True, containing=OF_EVALUATIONS):
        add_evaluation(found, line)
    return found


def add_evaluation(found: list[Evaluation], line: Mapping[str, Any]) -> None:
    """Append the evaluation that a metric line holds, if it holds one."""
    steps, mean = line.get("env_steps"), _number(line.get("eval_mean_return"))
    if line.get("kind") != "eval" or type(steps) is not int or not 0 <= steps < LARGEST_STEP or mean is None:
        return
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


def pool_evaluations(seeds: Sequence[Sequence[Evaluation]]) -> list[Evaluation]:
    """The evaluations that all seeds have in common, as evaluations of their group: a seed counts as an episode does.

    Those of a single seed stay as they are.
    """
    if len(seeds) == 1:
        return list(seeds[0])
    by_step = [{(each.env_steps, each.is_result): each.mean for each in seed} for seed in seeds]
    pooled = []
    for steps, is_result in by_step[0] if by_step else {}:
        means = [found[steps, is_result] for found in by_step if (steps, is_result) in found]
        if len(means) == len(seeds):
            pooled.append(Evaluation(steps, fmean(means), pstdev(means), len(means), is_result))
    return pooled


def read_scores(run_dir: Path) -> Scores:
    """The last and the best score of a run, for a listing."""
    return scores_of(read_evaluations(run_dir))


def scores_of(evaluations: Sequence[Evaluation]) -> Scores:
    if not evaluations:
        return Scores()
    competing = [each.mean for each in evaluations if not each.is_result]
    return Scores(evaluations[-1].mean, max(competing), evaluations[-1].env_steps)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) <= LARGEST_SCORE else None
