"""The runs that a dashboard shows: which they are, and a row about each that is read again only after a change."""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.analysis.evaluations import OF_EVALUATIONS, Evaluation, add_evaluation, scores_of
from rl_training.analysis.run_group import StoredRun, select_runs
from rl_training.dashboard.run_stream import RunStream, plain
from rl_training.dashboard.thin_curve import thin
from rl_training.diagnosis.findings_file import FINDINGS_FILE
from rl_training.errors import CheckpointError
from rl_training.storage.run_directory import RunSummary, is_run_directory, list_runs, summarize_run
from rl_training.storage.run_file import RUN_FILE, created_at, read_run_info
from rl_training.storage.run_lock import is_locked
from rl_training.telemetry.metric_lines import METRICS_FILE
from rl_training.telemetry.metric_tail import MetricTail
from rl_training.text import clean_text

MOST_RUNS = 5000
MOST_STREAMS = 64  # runs whose curves are kept in memory
COURSE_POINTS = 48  # of the small curve in a row
BUDGET_SECONDS = 0.3
LARGEST_FINDINGS = 2**16
PATTERN = frozenset("*?[")

Row = dict[str, Any]
Stamp = tuple[int, int, int] | None


class Glance:
    """What one row says about a run. Of its metrics, only evaluations and the latest lines are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        info = read_run_info(path)
        self.order = (int(info.get("number", 0)), created_at(info, path).timestamp(), path.name)
        self._tail = MetricTail(path / METRICS_FILE, OF_EVALUATIONS)
        self._stamps: tuple[Stamp, ...] = ()
        self._row: Row = {"status": "unknown", "pending": True}
        self._restart()

    def _restart(self) -> None:
        self._evaluations: list[Evaluation] = []
        self._steps: int | None = None
        self._speed: float | None = None

    def is_changed(self) -> bool:
        return self._stamps != self._now()

    def _now(self) -> tuple[Stamp, ...]:
        return tuple(_stamp(self.path / name) for name in (RUN_FILE, METRICS_FILE, FINDINGS_FILE))

    def read(self) -> None:
        """Read what is new. The stamps are from before, so a change during the reading is seen the next time."""
        stamps = self._now()
        while True:
            is_new, lines = self._tail.read()
            if is_new:
                self._restart()
            for line in lines:
                self._steps = line["env_steps"]
                self._speed = line.get("steps_per_second") or self._speed
                add_evaluation(self._evaluations, line)
            if not lines:
                break
        self._row = self._make_row(summarize_run(self.path), read_run_info(self.path))
        self._stamps = stamps

    def _make_row(self, run: RunSummary, info: dict[str, Any]) -> Row:
        scores, speed, seconds = scores_of(self._evaluations), self._speed, info.get("wall_seconds")
        steps = self._steps if self._steps is not None else info.get("env_steps")
        if run.status != "running" and seconds and steps:
            speed = steps / seconds
        course = [each for each in self._evaluations if not each.is_result]
        x, y = (np.array([getattr(each, name) for each in course], np.float64) for name in ("env_steps", "mean"))
        x, y = thin(x, y, COURSE_POINTS)
        return {
            "status": run.status,
            "algorithm": run.algorithm,
            "env": run.env,
            "seed": None if run.seed is None else str(run.seed),
            "created": run.created,
            "steps": steps,
            "total": run.total_timesteps,
            "last": scores.last,
            "best": scores.best,
            "scored_at": scores.steps,
            "is_final": bool(self._evaluations) and self._evaluations[-1].is_result,
            "speed": speed,
            "seconds": seconds,
            "stop_reason": info.get("stop_reason"),
            "findings": _count_lines(self.path / FINDINGS_FILE),
            "course": {"x": plain(x), "y": plain(y)},
        }

    def row(self) -> Row:
        """The row, with the status of this moment; without numbers if the run was not read yet."""
        if self._row["status"] == "running" and not is_locked(self.path):
            return {**self._row, "status": "interrupted"}  # its process died without a word
        return self._row


class RunShelf:
    """All runs of a dashboard by the name that their page has. New ones appear, deleted ones go."""

    def __init__(
        self,
        targets: Sequence[str] = (),
        output_dir: str | Path = "runs",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.output_dir, self._clock = Path(output_dir), clock
        self._fixed: list[Path] = []
        self._folders: list[tuple[Path, str]] = []  # and the pattern of the names in it
        for text in targets or [str(output_dir)]:
            self._add_target(text, is_default=not targets)
        self._paths: dict[str, Path] = {}
        self._glances: dict[str, Glance] = {}
        self._rows: dict[str, tuple[int, Row]] = {}  # with the number of the change that it is from
        self._change = 0
        self._streams: OrderedDict[Path, RunStream] = OrderedDict()
        self.refresh()

    def _add_target(self, text: str, is_default: bool) -> None:
        if is_run_directory(text):
            self._fixed.append(Path(text).absolute())
        elif is_default:  # it may be empty, and even missing: the first run is about to come
            self._folders.append((Path(text).absolute(), "*"))
        elif os.path.isdir(text):
            if not list_runs(text):
                raise CheckpointError(f"{clean_text(text, 100)}: has no runs; name a directory of runs, or a run")
            self._folders.append((Path(text).absolute(), "*"))
        elif PATTERN & set(text) and "=" not in text and "," not in text:
            self._folders.append((self.output_dir.absolute(), text))
        else:
            self._fixed += [run.path.absolute() for run in select_runs(text, self.output_dir)]

    def refresh(self) -> None:
        """Look which runs there are."""
        known = {path: name for name, path in self._paths.items()}
        found = list(dict.fromkeys(self._present()))[:MOST_RUNS]
        taken = {known[path] for path in found if path in known}
        self._paths = {known[path]: path for path in found if path in known}
        for path in found:
            if path not in known:
                name = _free(clean_text(path.name, 100).strip() or "run", taken)
                taken.add(name)
                self._paths[name] = path
        for name in set(self._rows) - set(self._paths):
            del self._rows[name]
        self._glances = {
            name: self._glances[name] if name in self._glances else Glance(path) for name, path in self._paths.items()
        }

    def _present(self) -> Iterator[Path]:
        yield from (path for path in self._fixed if is_run_directory(path))
        for folder, pattern in self._folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                names = [entry.name for entry in entries if fnmatchcase(entry.name, pattern)]
                yield from (folder / name for name in names if is_run_directory(folder / name))

    @property
    def names(self) -> list[str]:
        return list(self._paths)

    def run(self, name: str) -> StoredRun | None:
        """The run with this name on the shelf. A name is never taken for a path."""
        path = self._paths.get(name)
        return None if path is None or not is_run_directory(path) else StoredRun(path)

    def row(self, name: str) -> Row:
        """The row of one run, read now."""
        glance = self._glances[name]
        if glance.is_changed():
            glance.read()
        return {"name": name, **glance.row()}

    def rows(self, after: int = 0, budget: float = BUDGET_SECONDS) -> dict[str, Any]:
        """The rows that have changed after a number, all names from new to old, and the number of this answer.

        Reading stops when the budget is used up; `pending` is the number of runs that were not read yet.
        """
        self.refresh()
        until = self._clock() + budget
        pending = 0
        for name in self._in_order():
            glance = self._glances[name]
            if glance.is_changed():
                if self._clock() > until:
                    pending += 1
                else:
                    glance.read()
            row = {"name": name, **glance.row()}
            if name not in self._rows or self._rows[name][1] != row:
                self._change += 1
                self._rows[name] = (self._change, row)
        names = self._in_order()
        changed = [self._rows[name][1] for name in names if self._rows[name][0] > after]
        return {"change": self._change, "names": names, "rows": changed, "pending": pending}

    def _in_order(self) -> list[str]:
        """Newest first."""
        return sorted(self._glances, key=lambda name: self._glances[name].order, reverse=True)

    def stream(self, run: StoredRun) -> RunStream:
        """The curves of a run. Those that were not asked for lately are forgotten."""
        stream = self._streams.pop(run.path, None)
        if stream is None:
            stream = RunStream(run)
        self._streams[run.path] = stream
        while len(self._streams) > MOST_STREAMS:
            self._streams.popitem(last=False)
        return stream


def _free(name: str, taken: set[str]) -> str:
    """Runs of different directories may share a name, and some names cannot be shown."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free


def _stamp(path: Path) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _count_lines(path: Path) -> int:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FINDINGS:
            return 0
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0
