"""The lines of a board: what each side took, or scored, over its seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.analysis.statistics import score_text
from rl_training.zoo.clock.board import OURS, Side, Task
from rl_training.zoo.clock.clock_results import Result, find_result

Line = dict[str, Any]
SOLVED_COLUMNS = ("side", "solved", "median s", "lowest .. highest", "/ ours", "with evaluations", "env steps", "again")
NOTHING = "-"
MARK = "\N{DAGGER}"  # of a side with a run during which other programs were busy


def clock_lines(
    tasks: Sequence[Task], seeds: Sequence[int], folders: Sequence[Path], failures: Mapping[str, str] | None = None
) -> list[Line]:
    """A line per task and side. `failures` has reasons by the title of a turn."""
    lines = []
    for task in tasks:
        found = [_line(task, side, seeds, folders, failures or {}) for side in task.sides]
        if not task.minutes:
            ours = [_median(line) for line in found if line["library"] == OURS and line["median"] is not None]
            best = min(ours, default=math.inf)
            for line in found:
                line["of_ours"] = _ratio(line, best)
        lines += found
    return lines


def _line(task: Task, side: Side, seeds: Sequence[int], folders: Sequence[Path], failures: Mapping[str, str]) -> Line:
    results = {seed: result for seed in seeds if (result := find_result(folders, task, side, seed)) is not None}
    every = list(results.values())
    line: Line = {
        "task": task.name,
        "env": task.text.env,
        "threshold": task.text.threshold,
        "limit": task.limit,
        "side": side.name,
        "title": side.title,
        "library": side.library,
        "seeds": len(results),
        "of_seeds": len(seeds),
        "env_steps": statistics.median(result.env_steps for result in every) if every else None,
        "foreign_load": max((result.foreign_load for result in every if result.foreign_load is not None), default=None),
        "disturbed": [seed for seed, result in results.items() if result.is_disturbed],
        "sittings": {str(seed): result.sitting for seed, result in results.items()},
        "versions": sorted({result.versions for result in every}),
        "machines": sorted({result.machine for result in every}),
        "failures": _failures_of(task, side, seeds, failures),
    }
    return line | (_scores(task, results) if task.minutes else _times(task, side, results, folders))


def _times(task: Task, side: Side, results: Mapping[int, Result], folders: Sequence[Path]) -> Line:
    """Infinity, a run that did not solve the task, becomes None in the list, and in the median counts as it is."""
    seconds = [result.solved_after(task.limit) for result in results.values()]
    again = [find_result(folders, task, side, seed, warm=True) for seed in results]
    warm = [result.solved_after(task.limit) for result in again if result is not None]
    every = list(results.values())
    unsolved = [result.seconds for result, value in zip(every, seconds, strict=True) if value == math.inf]
    return {
        "solved": sum(value < math.inf for value in seconds),
        "each": [None if value == math.inf else value for value in seconds],
        "median": _finite(statistics.median(seconds)) if seconds else None,
        "unsolved_after": max(unsolved, default=None),
        "wall": statistics.median(result.wall_seconds for result in every) if every else None,
        "processor": statistics.median(result.processor_seconds for result in every) if every else None,
        "again": _finite(statistics.median(warm)) if len(warm) == len(seconds) and warm else None,
    }


def _scores(task: Task, results: Mapping[int, Result]) -> Line:
    marks: dict[str, list[float]] = {}
    for minutes in task.minutes:
        values = [result.score_after(minutes) for result in results.values()]
        marks[f"{minutes:g}"] = [value for value in values if value is not None]
    return {"scores": marks}


def _failures_of(task: Task, side: Side, seeds: Sequence[int], failures: Mapping[str, str]) -> dict[str, str]:
    titles = {str(seed): f"{task.name} seed {seed} {side.name}" for seed in seeds}
    return {seed: failures[title] for seed, title in titles.items() if title in failures}


def _finite(value: float) -> float | None:
    return None if value == math.inf else value


def _median(line: Line) -> float:
    return math.inf if line["median"] is None else float(line["median"])


def _ratio(line: Line, ours: float) -> float | None:
    """The side's median in those of our fastest side; None where one of them is not known or did not solve the task."""
    if line["median"] is None or ours == math.inf:
        return None
    return float(line["median"]) / ours


def solved_cells(line: Line) -> list[str]:
    """In the order of `SOLVED_COLUMNS`. A median of fewer seeds says so."""
    title = title_of(line)
    if not line["seeds"]:
        return [title, NOTHING, "failed" if line["failures"] else "not run", *[NOTHING] * 5]
    missing = f" ({line['seeds']} of {line['of_seeds']} seeds)" if line["seeds"] < line["of_seeds"] else ""
    median = f"not solved in {line['unsolved_after']:.0f} s" if line["median"] is None else seconds_text(line["median"])
    cells = [title, f"{line['solved']} of {line['seeds']}", median + missing, _span(line)]
    if line["median"] is None:
        return [*cells, *[NOTHING] * 4]
    return [
        *cells,
        NOTHING if line["of_ours"] is None else f"{line['of_ours']:.2f}",
        seconds_text(line["wall"]),
        f"{line['env_steps']:,.0f}",
        NOTHING if line["again"] is None else seconds_text(line["again"]),
    ]


def title_of(line: Line) -> str:
    return str(line["title"]) + (f" {MARK}" if line["disturbed"] else "")


def _span(line: Line) -> str:
    solved = sorted(value for value in line["each"] if value is not None)
    if not solved:
        return NOTHING
    high = "not solved" if line["solved"] < line["seeds"] else seconds_text(solved[-1])
    return f"{seconds_text(solved[0])} .. {high}"


def score_columns(task: Task) -> list[str]:
    return ["side", *(f"{minutes:g} min" for minutes in task.minutes), "env steps"]


def score_cells(line: Line) -> list[str]:
    """The mean over the seeds, and the lowest and the highest seed."""
    cells = []
    for values in line["scores"].values():
        if not values:
            cells.append("failed" if line["failures"] else "not run")
            continue
        text = score_text(statistics.fmean(values))
        if len(values) > 1:
            text += f" ({score_text(min(values))} .. {score_text(max(values))})"
        if len(values) < line["of_seeds"]:
            text += f", {len(values)} of {line['of_seeds']} seeds"
        cells.append(text)
    return [title_of(line), *cells, NOTHING if line["env_steps"] is None else f"{line['env_steps']:,.0f}"]


def seconds_text(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}"


def remarks(lines: Sequence[Line]) -> Iterator[str]:
    """What a reader must know about the runs of one task: failures, other sittings, and other programs."""
    for line in lines:
        for seed, why in line["failures"].items():
            yield f"{line['side']} seed {seed} failed: {why}."
    by_sitting: dict[str, list[str]] = {}
    for line in lines:
        for seed, sitting in line["sittings"].items():
            by_sitting.setdefault(sitting, []).append(f"{line['side']} {seed}")
    if len(by_sitting) > 1:
        parts = [f"{sitting} ({_grouped(runs)})" for sitting, runs in sorted(by_sitting.items())]
        yield f"Measured in {len(parts)} sittings: {'; '.join(parts)}."
    disturbed = [f"{line['side']} {seed}" for line in lines for seed in line["disturbed"]]
    if disturbed:
        yield f"{MARK} Other programs took more than a tenth of a core: {_grouped(disturbed)}."


def _grouped(runs: Sequence[str]) -> str:
    """`ours 0`, `ours 1`, `sb3 0` as `ours seeds 0 and 1, sb3 seed 0`."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        side, _, seed = run.rpartition(" ")
        seeds.setdefault(side, []).append(seed)
    return ", ".join(f"{side} seed{'s' if len(each) > 1 else ''} {' '.join(each)}" for side, each in seeds.items())
