"""The result of each run of a board: a small file per task, side and seed, so that a sitting can be continued."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage.durable_files import atomic_write_text, make_directory, read_json
from rl_training.text import clean_text
from rl_training.zoo.clock.board import Side, Task
from rl_training.zoo.clock.foreign_load import MOST_LOAD
from rl_training.zoo.clock.worker_process import Measured
from rl_training.zoo.runs import same_settings

# What must be equal for a result to be one of a task. The budget and the minutes may be longer or shorter.
COMPARED = ("env", "threshold", "every", "episodes", "first_episodes", "first_seed")
TEXTS = ("end", "sitting", "machine", "versions")
NUMBERS = ("env_steps", "seconds", "wall_seconds", "processor_seconds")


@dataclass(frozen=True)
class Result:
    """One run. `points` are its evaluations: env steps, seconds of the clock, mean return and episodes."""

    end: str
    env_steps: int
    seconds: float
    wall_seconds: float
    processor_seconds: float
    foreign_load: float | None
    points: tuple[Mapping[str, float], ...]
    sitting: str
    machine: str
    versions: str
    compiled: bool  # whether it left compiled code in its cache

    @property
    def is_disturbed(self) -> bool:
        return self.foreign_load is not None and self.foreign_load > MOST_LOAD

    def solved_after(self, limit: float) -> float:
        """Seconds of the clock until the task was solved; infinity if it was not within the limit."""
        return self.seconds if self.end == "solved" and self.seconds <= limit else math.inf

    def score_after(self, minutes: float) -> float | None:
        """The mean return of the evaluation at this time; None if the run was shorter."""
        late = [point for point in self.points if point["seconds"] >= 60.0 * minutes]
        return None if not late else float(late[0]["mean"])

    def is_whole(self, task: Task) -> bool:
        """Whether it says what the task asks for."""
        if task.minutes:
            return self.score_after(task.minutes[-1]) is not None
        return self.end in ("solved", "steps") or self.seconds >= task.limit


@dataclass(frozen=True)
class Origin:
    """Where and when a result was measured."""

    sitting: str
    machine: str
    versions: str


def result_path(folder: Path, task: Task, side: Side, seed: int, warm: bool = False) -> Path:
    return folder / task.board / task.name / f"{side.name}-seed{seed}{'-warm' if warm else ''}.json"


def save_result(path: Path, task: Task, side: Side, measured: Measured, origin: Origin, compiled: bool) -> None:
    record = {
        "rule": {name: task.rule[name] for name in COMPARED},
        "settings": _settings(side),
        **asdict(measured),
        **asdict(origin),
        "compiled": compiled,
    }
    record["points"] = [list(point.values()) for point in measured.points]
    make_directory(path.parent)
    atomic_write_text(path, json.dumps(record) + "\n")


def load_result(path: Path, task: Task, side: Side) -> Result | None:
    """None if there is no result, or if the task or the settings of the side have changed since."""
    if not path.is_file():
        return None
    try:
        data = read_json(path)
        if data["rule"] != {name: task.rule[name] for name in COMPARED} or not _is_of(data["settings"], side):
            return None
        return _from_json(data)
    except (CheckpointError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{path}: not the result of a run; move it away to run it again") from None


def find_result(folders: Sequence[Path], task: Task, side: Side, seed: int, warm: bool = False) -> Result | None:
    """The first whole result in the folders, or None."""
    found = [load_result(result_path(folder, task, side, seed, warm), task, side) for folder in folders]
    present = [result for result in found if result is not None]
    return next((result for result in present if result.is_whole(task)), None)


def _settings(side: Side) -> dict[str, Any]:
    if side.preset is not None:
        return side.preset.model_dump(mode="json")
    return {"worker": side.library, "threads": side.text.threads, **side.text.settings}


def _is_of(stored: Any, side: Side) -> bool:
    if side.preset is not None:
        return same_settings(stored, side.preset)
    return bool(stored == json.loads(json.dumps(_settings(side))))


def _from_json(data: Mapping[str, Any]) -> Result:
    names = ("env_steps", "seconds", "mean", "episodes")
    points = tuple(dict(zip(names, point, strict=True)) for point in data["points"])
    numbers: dict[str, Any] = {name: data[name] for name in NUMBERS}
    load = data["foreign_load"]
    values = [
        *numbers.values(),
        *(value for point in points for value in point.values()),
        0.0 if load is None else load,
    ]
    if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
        raise ValueError("not a number")
    texts: dict[str, Any] = {name: clean_text(str(data[name])) for name in TEXTS}
    return Result(**numbers, **texts, foreign_load=load, points=points, compiled=bool(data["compiled"]))
