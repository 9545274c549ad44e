"""TensorBoard event files of any runs, made from their metric streams and written outside of them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from rl_training.analysis.run_group import StoredRun, select_runs
from rl_training.errors import ConfigError, RLTrainingError, install_hint
from rl_training.storage.durable_files import make_directory
from rl_training.storage.run_file import created_at, read_run_info
from rl_training.telemetry.metric_lines import METRICS_FILE, Line
from rl_training.telemetry.metric_tail import MetricTail
from rl_training.telemetry.tensorboard_sink import TensorBoardSink
from rl_training.text import clean_text, one_line

POLL_SECONDS = 2.0
HOST = "127.0.0.1"
# At the end of the names of our event files: whatever else is in a directory stays.
SUFFIX = ".from_metrics"


class EventFolder(TensorBoardSink):
    """The event files of one run in `folder`, under the names that the sink of a run uses.

    Events have the time at which the run wrote their line, not the time of this process.
    """

    def __init__(self, run: StoredRun, folder: Path) -> None:
        super().__init__()
        self._run, self._folder = run, folder
        self._tail = MetricTail(run.path / METRICS_FILE)
        self._started = created_at(read_run_info(run.path), run.path).timestamp()
        self._open(None)

    def _open(self, purge_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder), purge_step=purge_step, filename_suffix=SUFFIX)
        self._time = self._started

    def write(self, line: Line) -> None:
        if isinstance(line.get("wall_seconds"), (int, float)):
            self._time = self._started + line["wall_seconds"]
        self._keep(line, self._time)

    def follow(self) -> int:
        """Write the lines that are new since the last call; their number."""
        count = 0
        while True:
            is_new, lines = self._tail.read()
            if is_new:  # resumed from an earlier step: everything is written again, and the older events are hidden
                self.close()
                self._open(0)
            for line in lines:
                self.write(line)
            self._write_waiting()
            count += len(lines)
            if not lines:
                self.flush()
                return count


def write_events(runs: Sequence[str | Path], logdir: str | Path, *, output_dir: str | Path = "runs") -> list[Path]:
    """Write TensorBoard event files of runs to `logdir`, one directory per run, and return these directories.

    It makes no difference whether the runs were trained with the setting `tensorboard`. Nothing is written to them.
    """
    with contextlib.ExitStack() as stack:
        folders = _open_folders(runs, Path(logdir), output_dir, stack)
        for folder in folders.values():
            folder.follow()
        return list(folders)


def _open_folders(
    targets: Sequence[str | Path], logdir: Path, output_dir: str | Path, stack: contextlib.ExitStack
) -> dict[Path, EventFolder]:
    _require_tensorboard()
    runs = {run.path.resolve(): run for text in targets for run in select_runs(str(text), output_dir)}
    for path, run in runs.items():
        if logdir.resolve().is_relative_to(path):
            raise ConfigError(f"--logdir: {logdir} is inside the run {run.shown}; choose a directory outside of runs")
    opened: dict[Path, EventFolder] = {}
    for run, folder in zip(runs.values(), _folders(logdir, list(runs.values())), strict=True):
        try:
            make_directory(folder)
            for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
                old.unlink()
        except OSError as error:
            raise ConfigError(
                f"--logdir: {folder} cannot be written ({one_line(error.strerror or error)}); choose another directory"
            ) from None
        opened[folder] = EventFolder(run, folder)
        stack.callback(opened[folder].close)
    return opened


def _folders(logdir: Path, runs: Sequence[StoredRun]) -> Iterator[Path]:
    taken: set[str] = set()
    for run in runs:
        base = clean_text(run.name, 100).strip(". ") or "run"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name)
        yield logdir / name


def _require_tensorboard() -> None:
    if "tensorboard" in sys.modules and sys.modules["tensorboard"] is None:
        found = None
    else:
        found = find_spec("tensorboard")
    if found is None:
        raise ConfigError(f"tensorboard is not installed: {install_hint('tensorboard')}")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal end this block as Ctrl-C does: the server must not outlive it."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        # `nohup` ignores SIGHUP, and a program that calls this may have handlers of its own.
        before = {each: signal.signal(each, stop) for each in numbers if signal.getsignal(each) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_events(
    runs: Sequence[str | Path],
    *,
    logdir: str | Path | None = None,
    port: int | None = None,
    output_dir: str | Path = "runs",
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Start TensorBoard for runs on this machine's loopback address, and follow the runs until it ends.

    Without `logdir`, event files are in a temporary directory that is deleted at the end.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        if logdir is None:
            logdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="rl_training-tensorboard-"))
        folders = _open_folders(runs, Path(logdir), output_dir, stack)
        for folder in folders.values():
            folder.follow()
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", HOST]
        process = subprocess.Popen([*command, *([] if port is None else ["--port", str(port)])])
        try:
            while process.poll() is None:
                sleep(POLL_SECONDS)
                for folder in folders.values():
                    folder.follow()
        finally:
            process.terminate()
            process.wait()
    if process.returncode not in (0, -15):
        raise RLTrainingError(f"tensorboard ended with exit code {process.returncode}; its message is above")
