"""Results per seed for tables, plots and bands, read from a run or from the saved results of an earlier report.

Runs are large and stay on the machine that made them. A report saves scores and learning curves in a small file per
row, so that a later report with other rows or more seeds does not need the old runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.analysis.curves import Curve, read_curve
from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage.checkpoints import list_checkpoints, read_manifest
from rl_training.storage.durable_files import atomic_write_text, read_json
from rl_training.text import clean_text
from rl_training.zoo.manifest import Entry
from rl_training.zoo.runs import (
    SCORE_NUMBERS,
    Job,
    is_number,
    same_settings,
    saved_steps,
    settings,
    stored_failure,
    stored_score,
)


@dataclass(frozen=True)
class Result:
    """One seed: its evaluations so far, and its final score if it is finished."""

    curve: Curve
    env_steps: int = 0
    score: dict[str, float] | None = None
    versions: str | None = None
    machine: str | None = None
    failure: str | None = None
    policies: Mapping[str, float] = field(default_factory=dict)  # mean return of each, if the agent has several

    @property
    def progress(self) -> float:
        """Env steps, for ordering. Evaluations count too: they are more frequent than saves."""
        return math.inf if self.score is not None else max([float(self.env_steps), *self.curve.steps[-1:]])

    def done(self, stop: int, fraction: float) -> bool:
        """A full run is done when it has a score, a fraction of it when the run has reached `stop`."""
        return self.score is not None or (fraction < 1 and self.env_steps >= stop)


Results = Mapping[int, Result]  # by seed


def gather(
    entries: Sequence[Entry], seeds: int, output_dir: str, results_folder: Path | None = None
) -> dict[str, dict[int, Result]]:
    """Results by row and seed: from runs with the preset's settings, or saved ones that are further along."""
    by_row: dict[str, dict[int, Result]] = {}
    for entry in entries:
        saved = {} if results_folder is None else load_results(entry, results_folder)
        pairs = [(seed, of_run(Job(entry, seed, output_dir)), saved.get(seed)) for seed in range(seeds)]
        row = {seed: _further(run, saved_result) for seed, run, saved_result in pairs}
        by_row[entry.name] = {seed: result for seed, result in row.items() if result is not None}
    return by_row


def _further(run: Result | None, saved: Result | None) -> Result | None:
    if run is None or saved is None:
        return run or saved
    return run if run.progress >= saved.progress else replace(saved, failure=run.failure)


def of_run(job: Job) -> Result | None:
    """None for a missing run or one with outdated settings. A job may fail before it has a run."""
    score, failure = stored_score(job), stored_failure(job)
    if score is None and not same_settings(job.run_dir / "config.yaml", job.entry.preset):
        return None if failure is None else Result(_curve([]), failure=failure)
    policies: dict[str, float] = {}
    if score is not None:
        policies = _policies(score.get("policies"))
        score = {key: float(score[key]) for key in SCORE_NUMBERS}
    curve, steps = read_curve(job.run_dir), saved_steps(job.run_dir)
    return Result(curve, steps, score, _versions(job.run_dir), this_machine(), failure, policies)


def _policies(values: Any) -> dict[str, float]:
    """Mean return by policy, from a file that anybody may have edited: what is no number is left out."""
    named = values.items() if isinstance(values, dict) else ()
    return {clean_text(str(name)): float(value) for name, value in named if is_number(value)}


def _versions(run_dir: Path) -> str | None:
    """Versions from the newest readable checkpoint; a running job may remove older ones at any moment."""
    for checkpoint in list_checkpoints(run_dir, "resume"):
        with contextlib.suppress(CheckpointError):
            manifest = read_manifest(checkpoint)
            facts = {"rl_training": manifest.library_version} | manifest.fingerprint
            return clean_text(", ".join(f"{name} {value}" for name, value in facts.items() if name != "threads"))
    return None


def this_machine() -> str:
    """A description of this machine; runs are assumed to come from the machine that holds them."""
    return f"{processor()}, {os.cpu_count()} cores"


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def save_results(entry: Entry, results: Results, folder: Path) -> Path | None:
    """Save `<algo>/<env>.json`, a line per seed. Seeds that were saved before and not requested now are kept."""
    started = {seed: result for seed, result in results.items() if result.progress}
    if not started:
        return None
    merged = dict(sorted((load_results(entry, folder) | started).items()))
    lines = ",\n".join(f'  "{seed}": {json.dumps(_as_json(result))}' for seed, result in merged.items())
    path = folder / f"{entry.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f'{{\n "settings": {json.dumps(settings(entry.preset))},\n "seeds": {{\n{lines}\n }}\n}}\n'
    atomic_write_text(path, text)
    return path


def _as_json(result: Result) -> dict[str, Any]:
    """Values are not rounded, so a report from saved results equals one from the runs."""
    points = zip(result.curve.steps, result.curve.returns, result.curve.seconds, strict=True)
    curve = [[int(step), float(value), float(clock)] for step, value, clock in points]
    facts = {name: getattr(result, name) for name in ("env_steps", "score", "versions", "machine")}
    return facts | ({"policies": dict(result.policies)} if result.policies else {}) | {"curve": curve}


def load_results(entry: Entry, folder: Path) -> dict[int, Result]:
    """Load saved results by seed; empty without a file, or if the preset has changed since."""
    path = folder / f"{entry.name}.json"
    if not path.is_file():
        return {}
    try:
        data = read_json(path)
        if not same_settings(data["settings"], entry.preset):
            return {}
        return {int(seed): _from_json(each) for seed, each in data["seeds"].items()}
    except (CheckpointError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{path}: not the results of a benchmark; move it away to rebuild it from runs") from None


def _from_json(data: dict[str, Any]) -> Result:
    score = data["score"]
    if score is not None:
        score = {key: float(score[key]) for key in SCORE_NUMBERS}
    if not all(map(is_number, [data["env_steps"], *(score or {}).values(), *itertools.chain(*data["curve"])])):
        raise ValueError("not a number")
    versions, machine = (
        None if data.get(key) is None else clean_text(str(data[key])) for key in ("versions", "machine")
    )
    policies = _policies(data.get("policies"))
    return Result(_curve(data["curve"]), int(data["env_steps"]), score, versions, machine, policies=policies)


def _curve(points: Sequence[Sequence[float]]) -> Curve:
    steps, returns, seconds = zip(*points, strict=True) if points else ((), (), ())
    return Curve(*(np.asarray(values, np.float64) for values in (steps, returns, seconds)))
