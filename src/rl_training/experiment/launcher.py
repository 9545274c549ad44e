"""Runs many jobs on a few worker processes; the parent survives the death of any worker."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.program import call
from rl_training.runtime.stop_signals import StopSignals
from rl_training.storage.real_files import open_own_descriptor
from rl_training.text import one_line, reason

TICK_SECONDS = 0.2
REPORT_SECONDS = 0.5
GRACE_SECONDS = 60.0
EXIT_OF_A_BUG = 1

Watch = Callable[[int], bool]  # receives env steps and returns False to stop


class Stopped(Exception):
    """The run was asked to stop and has saved; it can be continued. `result` is what the task has so far."""

    def __init__(self, text: str, result: Any = None) -> None:
        super().__init__(text)
        self.result = result


class Job(Protocol):
    """One piece of work for a worker process, which receives it pickled."""

    @property
    def run_name(self) -> str:
        """Unique among the jobs of a launch."""

    @property
    def title(self) -> str:
        """What a reader of the progress sees."""

    @property
    def kind(self) -> str:
        """Jobs of one kind take about the same time."""

    @property
    def output_dir(self) -> str:
        """Where its output is logged, in the file `log_name`."""

    @property
    def log_name(self) -> str: ...

    @property
    def stop(self) -> int:
        """The env steps at its end."""

    def work(self, watch: Watch) -> Any:
        """Do the work in a worker process and return what can be pickled; Stopped if `watch` ended it."""

    def note_failure(self, reason: str) -> None:
        """Called in the parent process after a failure."""


class Display(Protocol):
    """Receives the progress of jobs; `jobs_display.py` implements it."""

    def begin(self, job: Job) -> None: ...
    def progress(self, job: Job, env_steps: int) -> None: ...
    def end(self, job: Job, problem: str | None, *, failed: bool = False) -> None: ...
    def tick(self) -> None: ...


@dataclass
class Worker:
    process: SpawnProcess
    pipe: Connection
    job: Job | None = None


@dataclass
class Outcome:
    """By run name: why jobs failed, with which exit codes, and what the others returned.

    `stopped` if a signal ended the launch; the results of jobs that were stopped are in `results` too.
    """

    failures: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    results: dict[str, Any] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)


def launch(jobs: Sequence[Job], workers: int, display: Display) -> Outcome:
    """Run every job. A job that fails or kills its process does not affect the others."""
    waiting, outcome = deque(jobs), Outcome()
    if not waiting:
        return outcome
    log = Path(waiting[0].output_dir) / waiting[0].log_name
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_log(log))
    except OSError as error:
        raise ConfigError(
            f"--output-dir {log.parent}: cannot create runs and {log.name} there ({one_line(error.strerror)}); choose "
            "another one"
        ) from None
    pool = [_start_worker(log) for _ in range(min(workers, len(waiting)))]
    try:
        with StopSignals(kept=f"`{call('zoo', 'run')}` continues each run from its last checkpoint") as signals:
            while any(worker.job for worker in pool) or (waiting and not signals.requested):
                for place, worker in enumerate(pool):
                    if worker.job is None and waiting and not signals.requested:
                        job = waiting.popleft()
                        display.begin(job)
                        pool[place] = _assign(job, worker, log)
                for ready in connection.wait([worker.pipe for worker in pool if worker.job], TICK_SECONDS):
                    _listen(next(worker for worker in pool if worker.pipe is ready), display, outcome)
                display.tick()
                if signals.requested:
                    signals.saving()  # the workers save now, however long that takes
                    waiting.clear()
                    _ask_to_stop(pool, display, outcome)
            outcome.stopped = signals.requested
            return outcome
    finally:
        _shut_down(pool)
        if log.exists() and not log.stat().st_size:
            log.unlink()


def _start_worker(log: Path) -> Worker:
    context = get_context("spawn")
    parent_end, worker_end = context.Pipe()
    process = context.Process(target=serve, args=(worker_end, str(log)))
    process.start()
    worker_end.close()  # otherwise the end of the pipe is never seen
    return Worker(process, parent_end)


def _assign(job: Job, worker: Worker, log: Path) -> Worker:
    """Give the job to the worker, or to a new one if the worker has died, and return it."""
    if not worker.process.is_alive() or not _send(worker, job):
        worker.pipe.close()
        worker = _start_worker(log)
        _send(worker, job)  # if this one dies too, `_listen` sees the end of its pipe and the job fails
    worker.job = job
    return worker


def _send(worker: Worker, message: Job | str) -> bool:
    """Send a message; False if the worker has died, which can happen at any moment."""
    try:
        worker.pipe.send(message)
    except OSError:
        return False
    return True


def _listen(worker: Worker, display: Display, outcome: Outcome) -> None:
    job = worker.job
    assert job is not None
    try:
        kind, content, result = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        kind, content, result = "failed", f"its process exited with code {worker.process.exitcode}", EXIT_OF_A_BUG
    if kind == "progress":
        display.progress(job, content)
        return
    worker.job = None
    if kind == "failed":
        outcome.failures[job.run_name], outcome.exit_codes[job.run_name] = content, result
        job.note_failure(content)
    else:
        outcome.results[job.run_name] = result
    display.end(job, content, failed=kind == "failed")


def _ask_to_stop(pool: list[Worker], display: Display, outcome: Outcome) -> None:
    """Ask through the pipe: Ctrl-C may have reached the workers already, and a second signal exits without saving."""
    for worker in pool:
        if worker.job is not None:
            _send(worker, "stop")  # if it has died, `_listen` notices next
    deadline = monotonic() + GRACE_SECONDS
    while any(worker.job for worker in pool) and monotonic() < deadline:
        for ready in connection.wait([worker.pipe for worker in pool if worker.job], TICK_SECONDS):
            _listen(next(worker for worker in pool if worker.pipe is ready), display, outcome)
        display.tick()
    for worker in pool:
        worker.job = None


def _shut_down(pool: list[Worker]) -> None:
    for worker in pool:
        worker.pipe.close()  # an idle worker exits
        worker.process.join(1.0)
        if worker.process.is_alive():
            worker.process.terminate()


def open_log(path: Path) -> int:
    """A descriptor that appends to the log; an OSError if that would write elsewhere."""
    return open_own_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def serve(pipe: Connection, log: str) -> None:
    """The main loop of a worker. Output of environments and libraries goes to the log, not to the display."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a training run installs its own handlers
    descriptor = open_log(Path(log))
    sys.stdout.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        if not isinstance(job, str):  # a request to stop may come after the end of the job
            try:
                pipe.send(_work(job, pipe))
            except OSError:
                return


def _work(job: Job, pipe: Connection) -> tuple[str, Any, Any]:
    """What to send to the parent: how the job ended, a text about it, and its result or exit code."""
    reported = monotonic()

    def watch(env_steps: int) -> bool:
        nonlocal reported
        if monotonic() - reported < REPORT_SECONDS:
            return True
        reported = monotonic()
        try:
            pipe.send(("progress", env_steps, None))
            return not pipe.poll()  # the only message to a busy worker is a request to stop
        except OSError:
            return False  # the parent is gone: save and exit

    try:
        return "done", None, job.work(watch)
    except Stopped as stopped:
        return "stopped", str(stopped), stopped.result
    except RLTrainingError as error:
        return "failed", reason(error), error.exit_code
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {reason(error)} (see the traceback in {job.log_name})"
        return "failed", text, EXIT_OF_A_BUG
