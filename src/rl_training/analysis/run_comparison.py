"""Compare two groups of runs: their interquartile means, and how likely one improves on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.analysis.curves import read_series
from rl_training.analysis.evaluations import read_evaluations
from rl_training.analysis.run_group import StoredRun, group_runs, newest_per_seed, select_runs
from rl_training.analysis.run_plot import DEFAULT_METRIC, unknown_metric
from rl_training.analysis.statistics import (
    Interval,
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    probability_of_improvement,
)
from rl_training.errors import ConfigError
from rl_training.text import clean_text

FEWEST_SEEDS = 3  # of each group on each env, to name a winner
EVEN = 0.5


@dataclass(frozen=True)
class GroupScore:
    """The scores of one group on one env."""

    group: str
    env: str
    runs: tuple[str, ...]
    scores: tuple[float, ...]
    seeds: int
    iqm: float
    interval: Interval | None  # None for a single run, which says nothing about its spread

    def summary(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "env_id": self.env,
            "seeds": self.seeds,
            "iqm": self.iqm,
            "interval": None if self.interval is None else list(self.interval),
            "scores": dict(zip(self.runs, self.scores, strict=True)),
        }


@dataclass(frozen=True)
class Comparison:
    """Two groups of runs. `probability` is how often a run of the second group scores higher than one of the first."""

    groups: tuple[str, str]
    score: str  # what is compared, in words
    scores: tuple[GroupScore, ...]  # by env: of the first group, then of the second
    probability: float
    interval: Interval
    notes: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, int]:
        """The fewest seeds of each group on any env."""
        first, second = (min(each.seeds for each in self.scores if each.group == name) for name in self.groups)
        return first, second

    @property
    def winner(self) -> str | None:
        """The group that scores higher; None if there are too few seeds or the interval contains an even chance."""
        if min(self.seeds) < FEWEST_SEEDS or self.interval.low <= EVEN <= self.interval.high:
            return None
        return self.groups[1] if self.probability > EVEN else self.groups[0]

    @property
    def verdict(self) -> str:
        """One line: the winner, or why there is none."""
        if min(self.seeds) < FEWEST_SEEDS:
            counts = " and ".join(f"{name} has {count}" for name, count in zip(self.groups, self.seeds, strict=True))
            return f"no winner: that takes at least {FEWEST_SEEDS} seeds in each group, and {counts}"
        if self.winner is None and self.interval.low == self.interval.high:
            return "no winner: all runs of both groups have the same score"
        if self.winner is None:
            return (
                "no winner: the groups cannot be told apart, because the interval of the probability contains 50 %; "
                "more seeds make it narrower"
            )
        return f"{self.winner} scores higher"

    def summary(self) -> dict[str, Any]:
        return {
            "groups": list(self.groups),
            "score": self.score,
            "scores": [each.summary() for each in self.scores],
            "probability_of_improvement": self.probability,
            "interval": list(self.interval),
            "winner": self.winner,
            "verdict": self.verdict,
            "notes": list(self.notes),
        }


def compare_runs(
    first: str | Sequence[str | Path],
    second: str | Sequence[str | Path],
    *,
    metric: str | None = None,
    output_dir: str | Path = "runs",
    names: tuple[str, str] | None = None,
) -> Comparison:
    """Compare two groups of runs by their last evaluation, or by the last value of `metric`; the higher one wins.

    A group is a text as in `select_runs` (names, a pattern, or conditions on settings) or a list of runs; `names` are
    what to call the two (default: that text or list). Intervals are 95 % intervals of a stratified bootstrap over runs.
    Fewer than 3 seeds on a side give numbers but no winner.

    >>> from rl_training import ExperimentManager
    >>> manager = ExperimentManager("runs")
    >>> for gamma in (0.9, 0.99):
    ...     _ = manager.run("a2c/cartpole", {"total_timesteps": 512, "gamma": gamma}, seeds=[0, 1], show=False)
    >>> compare_runs("gamma=0.9", "gamma=0.99").verdict
    'no winner: that takes at least 3 seeds in each group, and gamma=0.9 has 2 and gamma=0.99 has 2'
    """
    names = names or (_name(first), _name(second))
    if names[0] == names[1]:
        raise ConfigError(f"{names[0]}: a group cannot be compared with itself; name two groups")
    selected = [_select(each, output_dir) for each in (first, second)]
    shared = {run.path.resolve() for run in selected[0]} & {run.path.resolve() for run in selected[1]}
    if shared:
        name = clean_text(min(shared).name, 100)
        raise ConfigError(f"{names[0]}, {names[1]}: both groups contain {name}; name groups that do not overlap")
    notes: list[str] = []
    metric = None if metric == DEFAULT_METRIC else metric
    tables = [_scores_by_env(name, runs, metric, notes) for name, runs in zip(names, selected, strict=True)]
    if set(tables[0]) != set(tables[1]):
        lists = [", ".join(sorted(table)) for table in tables]
        raise ConfigError(
            f"{names[0]}, {names[1]}: the groups have different envs ({lists[0]} and {lists[1]}); "
            "add a condition such as env_id=CartPole-v1"
        )
    envs = sorted(tables[0])
    values = [[table[env].scores for env in envs] for table in tables]
    return Comparison(
        groups=names,
        score="mean return of the last evaluation" if metric is None else f"last {metric}",
        scores=tuple(table[env] for env in envs for table in tables),
        probability=probability_of_improvement(*values),
        interval=improvement_interval(*values),
        notes=tuple(notes),
    )


def _name(group: str | Sequence[str | Path]) -> str:
    return clean_text(group if isinstance(group, str) else ",".join(str(each) for each in group), 80)


def _select(group: str | Sequence[str | Path], output_dir: str | Path) -> list[StoredRun]:
    if isinstance(group, str):
        return select_runs(group, output_dir)
    runs = {run.path.resolve(): run for each in group for run in select_runs(str(each), output_dir)}
    if not runs:
        raise ConfigError("a group is empty; name at least one run")
    return list(runs.values())


def _scores_by_env(
    group: str, runs: Sequence[StoredRun], metric: str | None, notes: list[str]
) -> dict[str, GroupScore]:
    runs, repeated = newest_per_seed(runs)
    notes.extend(repeated)
    if len(kinds := group_runs(runs)) > 1:
        notes.append(f"{group} mixes settings: {'; '.join(kind.label for kind in kinds[:5])}")
    found: dict[str, list[tuple[StoredRun, float]]] = {}
    known: dict[str, None] = {}
    for run in runs:
        score = _last_evaluation(run) if metric is None else _last_value(run, metric, known)
        if score is None:
            notes.append(f"{run.shown} is left out: it has no {'evaluation' if metric is None else metric}")
            continue
        if run.status != "finished":
            notes.append(f"{run.shown} is {run.status}: its last score counts")
        found.setdefault(clean_text(run.config.env_id, 60), []).append((run, score))
    if not found and metric is not None:
        raise unknown_metric(metric, list(known), len(runs))
    if not found:
        raise ConfigError(f"{group}: none of its runs has an evaluation; train them to their end or set eval_every")
    return {env: _group_score(group, env, pairs) for env, pairs in found.items()}


def _group_score(group: str, env: str, pairs: Sequence[tuple[StoredRun, float]]) -> GroupScore:
    scores = [score for _, score in pairs]
    return GroupScore(
        group=group,
        env=env,
        runs=tuple(run.shown for run, _ in pairs),
        scores=tuple(scores),
        seeds=len({run.config.seed for run, _ in pairs}),
        iqm=interquartile_mean(scores),
        interval=bootstrap_interval(scores) if len(scores) > 1 else None,
    )


def _last_evaluation(run: StoredRun) -> float | None:
    evaluations = read_evaluations(run.path)
    return evaluations[-1].mean if evaluations else None


def _last_value(run: StoredRun, metric: str, known: dict[str, None]) -> float | None:
    curves, names = read_series(run.path, [metric])
    known.update(dict.fromkeys(names))
    values = curves[metric].returns
    return float(values[-1]) if values.size else None
