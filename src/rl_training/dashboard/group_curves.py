"""Runs side by side: groups of seeds with their bands, the settings that differ, and where curves part."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rl_training.analysis.curves import middle_half, on_grid
from rl_training.analysis.evaluations import pool_evaluations, read_evaluations
from rl_training.analysis.run_comparison import compare_runs
from rl_training.analysis.run_diff import STANDARD_ERRORS, RunDiff, diff_runs, differing_settings, find_parting
from rl_training.analysis.run_group import RunGroup, StoredRun, group_runs, newest_per_seed, setting_text
from rl_training.dashboard.metric_names import HIDDEN, describe
from rl_training.dashboard.run_shelf import RunShelf
from rl_training.dashboard.run_stream import RunStream, plain
from rl_training.dashboard.thin_curve import thin
from rl_training.errors import RLTrainingError
from rl_training.text import clean_text, one_line

MOST_RUNS = 60
GRID_POINTS = 200
SEED_POINTS = 300  # of the thin line of a single run
BUDGET_SECONDS = 0.6

Answer = dict[str, Any]


def read_groups(
    shelf: RunShelf, names: Sequence[str], metric: str, budget: float = BUDGET_SECONDS
) -> tuple[Answer, list[RunStream]]:
    """The streams of the runs, as far as they could be read in time; the answer says how far, and what was left out."""
    notes: list[str] = []
    runs = []
    for name in dict.fromkeys(names):
        run = shelf.run(name)
        if run is None:
            notes.append(f"{clean_text(name, 100)}: no such run")
        elif (problem := _problem(run)) is not None:
            notes.append(f"{run.shown} is left out: {problem}")
        else:
            runs.append(run)
    if len(runs) > MOST_RUNS:
        notes.append(f"the first {MOST_RUNS} of {len(runs)} runs are compared")
        runs = runs[:MOST_RUNS]
    until = time.monotonic() + budget
    streams = [shelf.stream(run) for run in runs]
    read = 0
    for stream in streams:
        left = until - time.monotonic()
        if left <= 0 or not stream.follow(left):
            break
        read += 1
    state = ",".join(stream.cursor for stream in streams)
    return {"metric": metric, "notes": notes, "read": read, "of": len(streams), "state": state}, streams


def compare_groups(answer: Answer, streams: Sequence[RunStream]) -> Answer:
    """Fill an answer of `read_groups` with the groups of its runs and all that tells them apart."""
    metric, by_path = answer["metric"], {stream.run.path: stream for stream in streams}
    runs, repeated = newest_per_seed([stream.run for stream in streams])
    answer["notes"] += repeated
    groups = group_runs(runs)
    known = dict.fromkeys(name for stream in streams for name in stream.metrics if name not in HIDDEN)
    answer["metrics"] = [{"name": name, **describe(name)} for name in known]
    answer["groups"] = [{"label": group.label, "seeds": group.seeds} for group in groups]
    envs = list(dict.fromkeys(clean_text(run.config.env_id, 60) for run in runs))
    answer["panels"] = []
    for env in envs:
        lines = []
        for number, group in enumerate(groups):
            members = [run for run in group.runs if clean_text(run.config.env_id, 60) == env]
            line = _line(number, [by_path[run.path] for run in members], metric)
            if line is not None:
                lines.append(line)
        answer["panels"].append({"env": env, "lines": lines})
    answer["settings"] = _settings_table(groups)
    answer["apart"] = _apart(groups, metric)
    return answer


def _problem(run: StoredRun) -> str | None:
    try:
        return None if run.settings else "it has no settings"
    except (RLTrainingError, OSError) as error:
        return one_line(error)


def _line(number: int, streams: Sequence[RunStream], metric: str) -> Answer | None:
    """The median and the middle half of the seeds of one group on one env, and each seed."""
    curves = [(stream, stream.curve(metric)) for stream in streams]
    curves = [(stream, curve) for stream, curve in curves if curve.steps.size]
    if not curves:
        return None
    steps, values = on_grid([curve for _, curve in curves], GRID_POINTS)
    low, middle, high = (plain(each) for each in middle_half(values))
    line: Answer = {"group": number, "x": plain(steps), "middle": middle, "seeds": []}
    if len(curves) > 1:
        line |= {"low": low, "high": high}
    for stream, curve in curves:
        x, y = thin(curve.steps, curve.returns, SEED_POINTS)
        seed = str(stream.run.config.seed)  # as text: JavaScript has no large integers
        line["seeds"].append({"run": stream.run.shown, "seed": seed, "x": plain(x), "y": plain(y)})
    return line


def _settings_table(groups: Sequence[RunGroup]) -> list[Answer]:
    every = [group.runs[0].experiment for group in groups]
    return [
        {"key": key, "values": [setting_text(value) for value in values]}
        for key, values in differing_settings(every).items()
    ]


def _apart(groups: Sequence[RunGroup], metric: str) -> Answer | None:
    """For two groups: where their evaluations part, and which of them scores higher."""
    if len(groups) != 2:
        return None
    first, second = groups
    apart: Answer = {"sentence": None, "at": None, "env": None, "diff": None, "verdict": None}
    envs = {run.config.env_id for group in groups for run in group.runs}
    if len(envs) == 1:
        pooled = [pool_evaluations([read_evaluations(run.path) for run in group.runs]) for group in groups]
        differ_from, part_at, common = find_parting(*pooled)
        words = RunDiff(first.label, second.label, (), (), (), common, differ_from, part_at).curves
        several = max(first.seeds, second.seeds) > 1
        apart["sentence"] = words.replace("their episodes", "their seeds") if several else words
        apart["at"] = None if part_at is None else part_at.env_steps
        apart["standard_errors"] = STANDARD_ERRORS
        apart["env"] = clean_text(next(iter(envs)), 60)
    if len(first.runs) == len(second.runs) == 1:
        diff = diff_runs(first.runs[0].path, second.runs[0].path).summary()
        apart["diff"] = {
            kind: [[each["name"], *(setting_text(each[side]) for side in ("first", "second"))] for each in diff[kind]]
            for kind in ("versions", "machine")
        }
    try:
        names = (first.label, second.label)
        comparison = compare_runs(*([run.path for run in group.runs] for group in groups), metric=metric, names=names)
        apart["verdict"] = {
            "text": comparison.verdict,
            "score": comparison.score,
            "probability": comparison.probability,
            "interval": list(comparison.interval),
            "scores": [
                {
                    "group": each.group,
                    "env": each.env,
                    "seeds": each.seeds,
                    "iqm": each.iqm,
                    "interval": None if each.interval is None else list(each.interval),
                }
                for each in comparison.scores
            ],
        }
    except RLTrainingError as error:
        apart["verdict"] = {"text": one_line(error), "scores": []}
    return apart
