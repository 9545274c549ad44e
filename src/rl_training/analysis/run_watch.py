"""Watch a run from another terminal: its console view on the tail of its metric stream. Nothing is written there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from rl_training.analysis.run_group import StoredRun, find_run
from rl_training.storage.run_file import read_run_info
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.metric_lines import METRICS_FILE, Line
from rl_training.telemetry.metric_tail import MetricTail

POLL_SECONDS = 0.5
# A run that is about to start or to resume is not locked for a moment, and then looks as if its process had died.
PATIENCE = 4


def watch_run(
    target: str | Path,
    *,
    output_dir: str | Path = "runs",
    stream: TextIO | None = None,
    show: bool | None = None,
    each_line: Callable[[Line], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Show the progress of a run until it ends, and return its status.

    On a terminal this is the live panel of training, elsewhere one line every few seconds. `each_line` receives the
    metric lines instead of a display; after a resume that rewrites the stream, from its start again.
    """
    run = find_run(target, output_dir)
    tail = MetricTail(run.path / METRICS_FILE)
    view = _View(run, stream if stream is not None else sys.stdout, show) if each_line is None else None
    patience = PATIENCE
    try:
        while True:
            status = run.status  # before reading: what was written until the end is then read
            is_new, lines = tail.read()
            if view is not None:
                view.add(lines, is_new)
            if each_line is not None:
                for line in lines:
                    each_line(line)
            patience = PATIENCE if status == "running" or lines else patience - 1
            if not lines and (status in ("finished", "failed") or patience <= 0):
                return status
            if not lines:
                sleep(POLL_SECONDS)
    finally:
        if view is not None:
            view.close()


class _View:
    """The display of a run, in the time of the run: its clock is the newest `wall_seconds`.

    So speed and duration are those of the run, whenever watching starts.
    """

    def __init__(self, run: StoredRun, stream: TextIO, show: bool | None) -> None:
        self._run, self._stream, self._show = run, stream, show
        self._display: ConsoleDisplay | None = None
        self._seconds = 0.0
        self._total = 0

    def add(self, lines: list[Line], is_new: bool) -> None:
        total = read_run_info(self._run.path).get("total_timesteps") or self._total
        if self._display is None or is_new or total != self._total:
            resumed = self._display is not None
            self.close()
            self._open(total, lines)
            if resumed and self._display is not None:
                self._display.note(f"the run was resumed, to {total:,} steps")
            return
        for line in lines:
            self._advance(line)
            self._display.update(line["env_steps"], line)

    def _open(self, total: int, lines: list[Line]) -> None:
        info = read_run_info(self._run.path)
        title = f"{info.get('algorithm') or '?'} on {info.get('env') or '?'}: {self._run.shown}"
        self._total, self._seconds = total, 0.0
        display = ConsoleDisplay(total, title, stream=self._stream, enabled=self._show, clock=lambda: self._seconds)
        for line in lines:  # nothing is drawn before the start, however many lines there are
            display.update(line["env_steps"], line)
        display.start()
        for line in lines:
            self._advance(line)
        if lines:
            display.update(lines[-1]["env_steps"])
        self._display = display

    def _advance(self, line: Line) -> None:
        seconds = line.get("wall_seconds")
        if isinstance(seconds, (int, float)):
            self._seconds = max(self._seconds, float(seconds))

    def close(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None
