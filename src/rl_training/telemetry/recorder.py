"""The metric stream of a run: one JSONL file, and sinks that are views of it.

`metrics.jsonl` is the truth. Every line is strict JSON: a float is written with its shortest exact repr,
and a value that is not finite (NaN, infinity) keeps its key and becomes `null`. The step axis is `env_steps`
everywhere. A sink that fails is switched off with one line to stderr; training goes on without it. When the disk is
full, lines of the stream itself wait in memory until it has room again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from rl_training.errors import CheckpointError, ConfigError
from rl_training.telemetry.metric_lines import (
    METRICS_FILE,
    WALL_CLOCK_FIELDS,
    clean_line,
    iterate_lines,
    read_metrics,
    warn,
    without_wall_clock,
)
from rl_training.telemetry.sinks import ConsoleSink, CsvSink, Display, Sink, TensorBoardSink, WandbSink
from rl_training.text import reason

__all__ = ["WALL_CLOCK_FIELDS", "Recorder", "read_metrics", "without_wall_clock"]

MOST_WAITING = 16 * 2**20  # bytes of lines that a full disk does not take


class Recorder:
    """Appends metric lines to `metrics.jsonl` in `run_dir` and passes them to the sinks.

    Lines are {"kind": "train" | "eval", "env_steps": ..., metrics...}. `resume_offset` is the `offset()` that
    a checkpoint stored: what was written after it is cut off, because the resumed run writes it again.
    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        table: bool = True,
        tensorboard: bool = False,
        wandb_project: str | None = None,
        display: Display | None = None,
        sinks: Sequence[Sink] = (),
        resume_offset: int | None = None,
    ) -> None:
        run_dir = Path(run_dir)
        self.path = run_dir / METRICS_FILE
        self._sinks: list[Sink] = []
        self._waiting = bytearray()
        self._is_stuck = False
        self._file: FileIO | None = None
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            if resume_offset is not None:
                self._offset = _cut(self.path, resume_offset)
            elif self.path.exists() and self.path.stat().st_size:
                raise ConfigError(
                    f"{self.path} holds the metrics of an earlier run; resume it or choose another run_name"
                )
            else:
                self._offset = 0
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise self._failure(error) from error
        try:
            if table:
                self._add("csv", lambda: CsvSink(run_dir))
            if tensorboard:
                resumed = resume_offset is not None
                self._add(
                    "tensorboard",
                    lambda: TensorBoardSink(run_dir, _last_step(self.path) + 1 if resumed else None),
                )
            if wandb_project:
                self._add("wandb", lambda: WandbSink(wandb_project, run_dir))
            if display is not None:
                self._sinks.append(ConsoleSink(display))
            self._sinks.extend(sinks)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str, build: Callable[[], Sink]) -> None:
        try:
            self._sinks.append(build())
        except ConfigError:
            raise  # a missing package is the user's to mend, before anything is trained
        except Exception as error:
            warn(f"{name} logging is off: {reason(error)}")

    def record(self, line: Mapping[str, Any]) -> None:
        """Write one line; `kind` is "train" when it is not given, `env_steps` must be there."""
        if "env_steps" not in line:
            raise ValueError("a metric line needs env_steps, the step axis of every sink")
        if self._file is None:
            raise ValueError("the recorder is closed")
        cleaned = clean_line({"kind": "train", **line})
        data = json.dumps(cleaned, allow_nan=False).encode() + b"\n"
        self._waiting += data
        self._offset += len(data)
        try:
            # Handed to the system at once: a killed process loses nothing, other programs can follow along.
            self._write_waiting()
        except OSError as error:
            if len(self._waiting) > MOST_WAITING:
                raise self._failure(error) from error
            if not self._is_stuck:
                warn(f"{self.path} cannot be written, its lines wait in memory: {reason(error)}")
            self._is_stuck = True
        self._each(lambda sink: sink.write(cleaned))

    def _write_waiting(self) -> None:
        while self._waiting and self._file is not None:
            # What the disk took of a line stays there; the rest follows when there is room.
            written = self._file.write(self._waiting)
            del self._waiting[:written]
        self._is_stuck = False

    def offset(self) -> int:
        """Bytes of `metrics.jsonl` so far: call `flush()` first, then store it in the checkpoint."""
        return self._offset

    def flush(self) -> None:
        """Bring the stream to the disk itself, so that a checkpoint's offset survives a power cut.

        CheckpointError when the disk does not take it: then no checkpoint may be written either.
        """
        if self._file is None:
            return
        try:
            self._write_waiting()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from error
        self._each(lambda sink: sink.flush())

    def close(self) -> None:
        """Flush and close the file and every sink; a second call does nothing."""
        if self._file is None:
            return
        try:
            self._write_waiting()
            os.fsync(self._file.fileno())
        except OSError as error:
            # No reason to fail: every checkpoint was refused that would have needed these lines.
            warn(f"the last lines of {self.path} are lost: {reason(error)}")
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
            sinks, self._sinks = self._sinks, []
            # In reverse: the display is among the last, and gives the terminal back before others complain.
            for sink in reversed(sinks):
                _close_sink(sink)

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in tuple(self._sinks):
            try:
                action(sink)
            except Exception as error:
                self._sinks.remove(sink)
                warn(f"{sink.name} logging is off from here: {reason(error)}")
                _close_sink(sink, quiet=True)

    def _failure(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"cannot write {self.path}: {reason(error)}; make room, then resume the run")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut(path: Path, offset: int) -> int:
    """Truncate the stream to `offset` bytes, and to whole lines; return the length that is left."""
    if not path.exists():
        if offset:
            warn(f"{path} is missing: metrics from before the checkpoint are lost, new ones are written")
        return 0
    with path.open("r+b") as file:
        kept = file.read(offset)
        whole = kept.rfind(b"\n") + 1
        if whole != offset:
            warn(f"{path} does not reach the checkpoint's {offset} bytes: it goes on from byte {whole}")
        file.truncate(whole)
        file.flush()
        os.fsync(file.fileno())
    return whole


def _last_step(path: Path) -> int:
    return max((int(line.get("env_steps") or 0) for line in iterate_lines(path)), default=-1)


def _close_sink(sink: Sink, quiet: bool = False) -> None:
    try:
        sink.close()
    except Exception as error:
        if not quiet:
            warn(f"{sink.name} logging did not close well: {reason(error)}")
