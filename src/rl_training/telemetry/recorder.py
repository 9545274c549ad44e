"""The metrics of a run: one JSONL file, and sinks that show its lines in other forms.

`metrics.jsonl` is the authoritative record. Every line is strict JSON: floats are exact, and a value that is not
finite (NaN, infinity) becomes `null`. The step axis is always `env_steps`. If a sink fails, the recorder turns it off
with one line on stderr and training continues. If the disk is full, lines wait in memory until there is space.
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from rl_training.errors import CheckpointError, ConfigError, raise_interrupts
from rl_training.storage.real_files import open_own_file
from rl_training.storage.run_lock import is_at
from rl_training.telemetry.metric_lines import (
    LONGEST_LINE,
    METRICS_FILE,
    WALL_CLOCK_FIELDS,
    clean_line,
    iterate_lines,
    read_metrics,
    warn,
    without_wall_clock,
)
from rl_training.telemetry.sinks import ConsoleSink, CsvSink, Display, Sink, SinkRun
from rl_training.text import clean_text, describe_error, reason, text_of

__all__ = ["WALL_CLOCK_FIELDS", "Recorder", "read_metrics", "without_wall_clock"]

MOST_WAITING = 16 * 2**20  # bytes of lines that may wait in memory while the disk is full


class Recorder:
    """Appends metric lines to `metrics.jsonl` in `run_dir` and passes them to the sinks.

    A line is {"kind": "train" | "eval", "env_steps": ..., metrics...}. `resume_offset` is the `offset()` in a
    checkpoint: later lines are removed, because the resumed run writes them again.
    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        table: bool = True,
        display: Display | None = None,
        sinks: Sequence[Sink] = (),
        resume_offset: int | None = None,
    ) -> None:
        run_dir = Path(run_dir)
        self.path = run_dir / METRICS_FILE
        self._sinks: list[Sink] = []
        self._waiting = bytearray()
        self._is_stuck = self._is_lost = False
        self._file: FileIO | None = None
        self._resumed = resume_offset is not None
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            if resume_offset is not None:
                self._offset = _cut(self.path, resume_offset)
            elif self.path.exists() and self.path.stat().st_size:
                raise ConfigError(
                    f"{self.path} contains the metrics of an earlier run; resume that run or choose another run_name"
                )
            else:
                self._offset = 0
            self._file = cast(FileIO, open_own_file(self.path, "ab", buffering=0))
        except OSError as error:
            raise self._failure(error) from error
        try:
            if table:
                self._add_table(run_dir)
            if display is not None:
                self._sinks.append(ConsoleSink(display))
            self._sinks.extend(sinks)
        except BaseException:
            self.close()
            raise

    def _add_table(self, run_dir: Path) -> None:
        try:
            self._sinks.append(CsvSink(run_dir))
        except Exception as error:
            warn(f"csv logging is off: {reason(error)}")

    def open_sinks(self, sinks: Sequence[Sink], run: SinkRun) -> None:
        """Open sinks of the user. One that cannot be opened is off, with one line."""
        if self._resumed:
            run = replace(run, resumed_after=_last_step(self.path))
        for sink in sinks:
            try:
                _call(sink, "open", run)
            except BaseException as error:
                raise_interrupts(error)
                warn(f"{_name(sink)} logging is off{_problem(sink, error)}")
                _close_sink(sink, quiet=True)
            else:
                # At the front, because sinks close in reverse order and the display must close before these.
                self._sinks.insert(0, sink)

    def record(self, line: Mapping[str, Any]) -> None:
        """Write one line. It must contain `env_steps`; its default `kind` is "train"."""
        if "env_steps" not in line:
            raise ValueError("a metric line needs env_steps, the step axis of all sinks")
        if self._file is None:
            raise ValueError("the recorder is closed")
        cleaned = clean_line({"kind": "train", **line})
        data = json.dumps(cleaned, allow_nan=False).encode() + b"\n"
        self._waiting += data
        self._offset += len(data)
        self._keep_file()
        try:
            # Write to the system at once: a killed process loses nothing, and other programs can follow the file.
            self._write_waiting()
        except OSError as error:
            if len(self._waiting) > MOST_WAITING:
                raise self._failure(error) from error
            if not self._is_stuck:
                warn(f"{self.path} cannot be written, lines wait in memory: {reason(error)}")
            self._is_stuck = True
        self._each(lambda sink: sink.write(cleaned))

    def note(self, text: str, env_steps: int) -> None:
        """Pass a finding to the sinks that take notes."""
        self._each(lambda sink: _call(sink, "note", text, env_steps))

    def _keep_file(self) -> None:
        """Write to a new file if something has removed or replaced ours: lines would vanish without a word."""
        assert self._file is not None
        if is_at(self._file.fileno(), self.path):
            return
        try:
            file = cast(FileIO, open_own_file(self.path, "ab", buffering=0))
        except OSError as error:
            if not self._is_lost:
                warn(f"{self.path} was replaced during training, and lines are lost: {reason(error)}")
            self._is_lost = True
            return
        warn(f"{self.path} was removed or replaced during training: lines from before are lost, new ones are recorded")
        self._file.close()
        self._file, self._is_lost = file, False
        self._offset = os.fstat(file.fileno()).st_size + len(self._waiting)

    def _write_waiting(self) -> None:
        while self._waiting and self._file is not None:
            # A partial write stays in the file; the rest of the line follows when there is space.
            written = self._file.write(self._waiting)
            del self._waiting[:written]
        self._is_stuck = False

    def offset(self) -> int:
        """The length of `metrics.jsonl` in bytes, for a checkpoint. Call `flush()` first."""
        return self._offset

    def flush(self) -> None:
        """Write all lines to the disk, so that the offset in a checkpoint is valid after a power failure.

        If that fails, a CheckpointError says so, and the checkpoint must not be written.
        """
        if self._file is None:
            return
        try:
            self._sync(self._file)
        except OSError as error:
            raise self._failure(error) from error
        self._each(lambda sink: _call(sink, "flush"))

    def close(self) -> None:
        """Flush and close the file and all sinks. A second call does nothing."""
        if self._file is None:
            return
        try:
            self._sync(self._file)
        except OSError as error:
            # Not an error: no checkpoint depends on these lines, because `flush` failed for them.
            warn(f"the last lines of {self.path} are lost: {reason(error)}")
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
            sinks, self._sinks = self._sinks, []
            # In reverse order: the display is one of the last and releases the terminal before others print warnings.
            for sink in reversed(sinks):
                _close_sink(sink)

    def _sync(self, file: FileIO) -> None:
        self._write_waiting()
        os.fsync(file.fileno())

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in tuple(self._sinks):
            if not any(sink is other for other in self._sinks):
                continue  # a note, which a sink passed on while it was written to, has turned this one off
            try:
                action(sink)
            except BaseException as error:
                raise_interrupts(error)
                self._sinks = [other for other in self._sinks if other is not sink]
                warn(f"{_name(sink)} logging is off from now on{_problem(sink, error)}")
                _close_sink(sink, quiet=True)

    def _failure(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"cannot write {self.path}: {reason(error)}; free some space, then resume the run")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut(path: Path, offset: int) -> int:
    """Truncate the file to whole lines within `offset` bytes; return the new length."""
    if not path.exists():
        if offset:
            warn(f"{path} is missing: metrics from before the checkpoint are lost, new ones are recorded")
        return 0
    with open_own_file(path, "r+b") as file:
        whole = _end_of_lines(file, min(offset, os.fstat(file.fileno()).st_size))
        if whole != offset:
            warn(f"{path} does not match the checkpoint, which expects {offset} bytes: it continues at byte {whole}")
        file.truncate(whole)
        file.flush()
        os.fsync(file.fileno())
    return whole


def _end_of_lines(file: IO[bytes], size: int) -> int:
    """The end of the last whole line within `size` bytes. It is read from the end: the file may be huge."""
    while size:
        start = max(0, size - LONGEST_LINE)
        file.seek(start)
        end = file.read(size - start).rfind(b"\n") + 1
        if end:
            return start + end
        size = start
    return 0


def _last_step(path: Path) -> int:
    return max((int(line.get("env_steps") or 0) for line in iterate_lines(path)), default=-1)


def _name(sink: Sink) -> str:
    return clean_text(text_of(getattr(sink, "name", "") or type(sink).__name__), 60)


def _problem(sink: Sink, error: BaseException) -> str:
    """What went wrong, as the end of a message. A sink of the user also gets the type of the error, and its place."""
    if type(sink).__module__.startswith("rl_training."):
        return f": {reason(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if Path(frame.filename).resolve() != Path(__file__).resolve()]
    place = f" ({clean_text(Path(theirs[0].filename).name, 60)}, line {theirs[0].lineno})" if theirs else ""
    return f"{place}: {describe_error(error)}"


def _call(sink: Sink, method: str, *arguments: Any) -> None:
    """Call a method that a sink which is no subclass of `Sink` may lack."""
    found = getattr(sink, method, None)
    if found is not None:
        found(*arguments)


def _close_sink(sink: Sink, quiet: bool = False) -> None:
    try:
        _call(sink, "close")
    except BaseException as error:
        raise_interrupts(error)
        if not quiet:
            warn(f"{_name(sink)} logging did not close cleanly{_problem(sink, error)}")
