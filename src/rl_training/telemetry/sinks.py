"""The sinks of the metric stream: their base class, and the ones of every run, a table and the console."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rl_training.storage.durable_files import release_temporary, temporary_sibling
from rl_training.storage.real_files import open_own_file
from rl_training.telemetry.metric_lines import METRICS_FILE, Line, iterate_lines

CSV_FILE = "metrics.csv"
_LEADING_COLUMNS = ("kind", "env_steps", "updates", "episodes")


def _say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True)
class SinkRun:
    """What a sink learns about its run when it is opened."""

    run_dir: Path
    config: Mapping[str, Any] = field(default_factory=dict)  # all settings, as in config.yaml
    resumed_after: int | None = None  # the last step that the metric stream has kept; None in a new run
    findings: tuple[str, ...] = ()  # what was found in the run before this process
    tell: Callable[[str], None] = _say_nothing  # prints one line above the display

    @property
    def name(self) -> str:
        return self.run_dir.name

    def status(self) -> str:
        """The status in run.json, such as running, finished, interrupted or failed."""
        try:
            return str(json.loads((self.run_dir / "run.json").read_text(encoding="utf-8"))["status"])
        except (OSError, ValueError, KeyError, TypeError):
            return "running"


class Sink:
    """Receives the metric lines of a run. Subclass it and override what you need, at least `write`.

    Every process that works on the run opens the sink once and closes it once. An error in any method turns the sink
    off with one line on stderr, and training continues.
    """

    name = ""  # in messages; without one, they use the name of the class

    def open(self, run: SinkRun) -> None:
        """Called before the first line; also when the run is resumed."""

    def write(self, line: Line) -> None:
        """Called with each line after it is in metrics.jsonl: `kind`, `env_steps`, and metrics by name."""

    def note(self, text: str, env_steps: int) -> None:
        """Called with each finding about the run, in one sentence."""

    def flush(self) -> None:
        """Called before each checkpoint."""

    def close(self) -> None:
        """Called at the end of the process, also after an error."""


def tagged_numbers(line: Line) -> dict[str, int | float]:
    """The numbers of a line as `train/...` and `eval/...`, without the step axis."""
    kind = line["kind"]
    numbers = {key: value for key, value in line.items() if isinstance(value, (int, float)) and key != "env_steps"}
    return {f"{kind}/{key.removeprefix(kind + '_')}": value for key, value in numbers.items()}


class CsvSink(Sink):
    """`metrics.csv`, one wide table. A new column, or a table that is gone, makes it write all of it from the JSONL."""

    name = "csv"

    def __init__(self, run_dir: Path) -> None:
        self._source = run_dir / METRICS_FILE
        self._path = run_dir / CSV_FILE
        self._rewrite()

    def _rewrite(self) -> None:
        columns: dict[str, None] = {}
        for line in iterate_lines(self._source):
            columns.update(dict.fromkeys(line))
        leading = [name for name in _LEADING_COLUMNS if name in columns]
        self._columns = leading + [name for name in columns if name not in _LEADING_COLUMNS]
        self._known = frozenset(self._columns)
        temporary = temporary_sibling(self._path)
        try:
            with open_own_file(temporary, "x", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if self._columns:
                    writer.writerow(self._columns)
                writer.writerows(self._row(line) for line in iterate_lines(self._source))
            os.replace(temporary, self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            release_temporary(temporary)

    def _row(self, line: Line) -> list[Any]:
        cells = [line.get(column) for column in self._columns]
        return [json.dumps(cell) if isinstance(cell, (list, dict)) else cell for cell in cells]

    def write(self, line: Line) -> None:
        if not self._known.issuperset(line) or not self._path.exists():
            self._rewrite()
            return
        with open_own_file(self._path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(self._row(line))


class Display(Protocol):
    """The methods of a console display that the recorder uses."""

    def update(self, env_steps: int, line: Line | None = None) -> None: ...

    def stop(self) -> None: ...


class ConsoleSink(Sink):
    """Passes each line to a display and stops the display at the end."""

    name = "console"

    def __init__(self, display: Display) -> None:
        self._display = display

    def write(self, line: Line) -> None:
        self._display.update(line["env_steps"], line)

    def close(self) -> None:
        self._display.stop()
