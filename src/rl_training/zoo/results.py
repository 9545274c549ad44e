"""What tables, pictures and bands need of each seed: read from its run, or from what an earlier report has kept.

Runs are large and stay on the machine that made them. A report keeps scores and learning curves, a small file per row,
so that the next one, with other rows or more seeds, can be made where the old runs are not.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage.checkpoints import list_checkpoints, read_manifest
from rl_training.storage.durable_files import atomic_write_text, read_json
from rl_training.storage.run_directory import is_run_directory, open_run_directory
from rl_training.zoo.curves import Curve, read_curve
from rl_training.zoo.manifest import Entry
from rl_training.zoo.runs import SCORE_NUMBERS, Job, same_settings, settings, stored_failure, stored_score


@dataclass(frozen=True)
class Result:
    """One seed: its evaluations so far, and the score of the whole budget once there is one."""

    curve: Curve
    env_steps: int = 0
    score: dict[str, float] | None = None
    versions: str | None = None
    machine: str | None = None
    failure: str | None = None

    @property
    def progress(self) -> float:
        """Evaluations come more often than saves, which tell the env steps."""
        return math.inf if self.score is not None else max([float(self.env_steps), *self.curve.steps[-1:]])

    def done(self, stop: int, fraction: float) -> bool:
        """A whole budget is done with its score, a part of it once the run has got that far."""
        return self.score is not None or (fraction < 1 and self.env_steps >= stop)


Results = Mapping[int, Result]  # by seed


def gather(
    entries: Sequence[Entry], seeds: int, output_dir: str, kept: Path | None = None
) -> dict[str, dict[int, Result]]:
    """By row and seed: runs of the preset's settings, or what is kept where that has got further than the run."""
    found: dict[str, dict[int, Result]] = {}
    for entry in entries:
        before = {} if kept is None else load(entry, kept)
        pairs = [(seed, of_run(Job(entry, seed, output_dir)), before.get(seed)) for seed in range(seeds)]
        row = {seed: _further(here, there) for seed, here, there in pairs}
        found[entry.name] = {seed: result for seed, result in row.items() if result is not None}
    return found


def _further(here: Result | None, kept: Result | None) -> Result | None:
    if here is None or kept is None:
        return here or kept
    return here if here.progress >= kept.progress else replace(kept, failure=here.failure)


def of_run(job: Job) -> Result | None:
    """None of a run that is not there, or has other settings by now; a failure may come before any run."""
    score, failure = stored_score(job), stored_failure(job)
    if score is None and not same_settings(job.run_dir / "config.yaml", job.entry.preset):
        return None if failure is None else Result(_curve([]), failure=failure)
    if score is not None:
        score = {key: float(score[key]) for key in SCORE_NUMBERS}
    curve, steps = read_curve(job.run_dir), _env_steps(job.run_dir)
    return Result(curve, steps, score, _versions(job.run_dir), this_machine(), failure)


def _env_steps(run_dir: Path) -> int:
    """At the last save; none of a run that was killed before it wrote anything."""
    return int(open_run_directory(run_dir).read_info().get("env_steps", 0)) if is_run_directory(run_dir) else 0


def _versions(run_dir: Path) -> str | None:
    """That the run itself recorded with its newest checkpoint; one that goes on may just be removing an older one."""
    for checkpoint in list_checkpoints(run_dir, "resume"):
        with contextlib.suppress(CheckpointError):
            manifest = read_manifest(checkpoint)
            facts = {"rl_training": manifest.library_version} | manifest.fingerprint
            return ", ".join(f"{name} {value}" for name, value in facts.items() if name != "threads")
    return None


def this_machine() -> str:
    """Runs are taken to have been made where they lie."""
    return f"{processor()}, {os.cpu_count()} cores"


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def keep(entry: Entry, results: Results, folder: Path) -> Path | None:
    """`<algo>/<env>.json`, a line per seed, with those seeds that were kept before and not asked for this time."""
    told = {seed: result for seed, result in results.items() if result.progress}
    if not told:
        return None
    whole = dict(sorted((load(entry, folder) | told).items()))
    lines = ",\n".join(f'  "{seed}": {json.dumps(_as_json(result))}' for seed, result in whole.items())
    path = folder / f"{entry.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f'{{\n "settings": {json.dumps(settings(entry.preset))},\n "seeds": {{\n{lines}\n }}\n}}\n'
    atomic_write_text(path, text)
    return path


def _as_json(result: Result) -> dict[str, Any]:
    """Unrounded: a report made of it is the one made of the run."""
    points = zip(result.curve.steps, result.curve.returns, result.curve.seconds, strict=True)
    curve = [[int(step), float(value), float(clock)] for step, value, clock in points]
    facts = {name: getattr(result, name) for name in ("env_steps", "score", "versions", "machine")}
    return facts | {"curve": curve}


def load(entry: Entry, folder: Path) -> dict[int, Result]:
    """Nothing where nothing is kept, or where the preset has changed since."""
    path = folder / f"{entry.name}.json"
    if not path.is_file():
        return {}
    try:
        data = read_json(path)
        if not same_settings(data["settings"], entry.preset):
            return {}
        return {int(seed): _from_json(each) for seed, each in data["seeds"].items()}
    except (CheckpointError, KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: no results of a benchmark; move it away, and they are made from the runs") from None


def _from_json(data: dict[str, Any]) -> Result:
    score = data["score"]
    if score is not None:
        score = {key: float(score[key]) for key in SCORE_NUMBERS}
    return Result(_curve(data["curve"]), int(data["env_steps"]), score, data["versions"], data.get("machine"))


def _curve(points: Sequence[Sequence[float]]) -> Curve:
    steps, returns, seconds = zip(*points, strict=True) if points else ((), (), ())
    return Curve(*(np.asarray(values, np.float64) for values in (steps, returns, seconds)))
