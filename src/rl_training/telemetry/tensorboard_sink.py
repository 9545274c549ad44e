"""The sink that writes TensorBoard event files into the run directory."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from rl_training.storage.durable_files import make_own_directory
from rl_training.telemetry.metric_lines import WALL_CLOCK_FIELDS, Line
from rl_training.telemetry.sinks import Sink, SinkRun

TENSORBOARD_DIRECTORY = "tensorboard"
# Lines become events in batches, which costs less than one by one. A line after a longer pause is written at once.
SECONDS_BETWEEN_BATCHES = 2.0
_EVENT_FILE = re.compile(r"events\.out\.tfevents\.\d{10}\.")


class TensorBoardSink(Sink):
    """Scalars as `train/...`, `eval/...` and `time/...` over environment steps; findings as text."""

    name = "tensorboard"
    _writer: Any
    _written_at = 0.0

    def __init__(self) -> None:
        self._waiting: list[tuple[Line, float]] = []

    def open(self, run: SinkRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = make_own_directory(run.run_dir / TENSORBOARD_DIRECTORY)
        _wait_for_a_later_name(folder)
        # TensorBoard hides earlier events from purge_step on, because the resumed run writes them again.
        purge_step = None if run.resumed_after is None else run.resumed_after + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def write(self, line: Line) -> None:
        self._keep(line, time.time())
        if time.monotonic() - self._written_at >= SECONDS_BETWEEN_BATCHES:
            self._write_waiting()

    def _keep(self, line: Line, seconds: float) -> None:
        self._waiting.append((line, seconds))

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for line, seconds in waiting:
            # One event for the line: `add_scalar` would write one for each number, which takes more than twice as long.
            self._writer.file_writer.add_summary(_summary(line), line["env_steps"], seconds)
        self._written_at = time.monotonic()

    def note(self, text: str, env_steps: int) -> None:
        self._writer.add_text("findings", text, env_steps)

    def flush(self) -> None:
        self._write_waiting()
        self._writer.flush()

    def close(self) -> None:
        try:
            self._write_waiting()
        finally:
            self._writer.close()


def _summary(line: Line) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    kind, summary = line["kind"], Summary()
    for key, value in line.items():
        if key == "env_steps" or not isinstance(value, (int, float)):
            continue
        group = "time" if key in WALL_CLOCK_FIELDS else kind
        summary.value.add(tag=f"{group}/{key.removeprefix(kind + '_')}", simple_value=float(value))
    return summary


def _wait_for_a_later_name(folder: Path) -> None:
    """Wait until a new event file is named after a later second than the files in `folder`, at most one second.

    TensorBoard reads event files in the order of their names, which begin with the second of their creation. Within
    one second the order is that of process numbers and counters, as text: a resumed run could come before its past.
    """
    seconds = [int(name.split(".")[3]) for name in os.listdir(folder) if _EVENT_FILE.match(name)]
    now = time.time()
    if seconds and int(now) <= max(seconds):
        time.sleep(min(max(seconds) + 1 - now, 1.0))
