"""Runs many jobs on a few worker processes; the parent survives the death of any worker."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.runtime.stop_signals import StopSignals
from rl_training.text import one_line, reason
from rl_training.zoo.runs import Job, Stopped, is_done, note_failure, train_and_score

TICK_SECONDS = 0.2
REPORT_SECONDS = 0.5
GRACE_SECONDS = 60.0
LOG = "zoo.log"


class Display(Protocol):
    """Receives the progress of jobs; `display.py` implements it."""

    def begin(self, job: Job) -> None: ...
    def progress(self, job: Job, env_steps: int) -> None: ...
    def end(self, job: Job, problem: str | None, *, failed: bool = False) -> None: ...
    def tick(self) -> None: ...


@dataclass
class Worker:
    process: SpawnProcess
    pipe: Connection
    job: Job | None = None


@dataclass(frozen=True)
class Outcome:
    """`failures` by run name; `stopped` if a signal ended the launch, so that the next call continues it."""

    failures: dict[str, str]
    stopped: bool


def launch(jobs: Sequence[Job], workers: int, display: Display) -> Outcome:
    """Run every unfinished job. A job that fails or kills its process does not affect the others."""
    waiting = deque(job for job in jobs if not is_done(job))
    if not waiting:
        return Outcome({}, False)
    log = Path(waiting[0].output_dir) / LOG
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    except OSError as error:
        raise ConfigError(
            f"--output-dir {log.parent}: cannot create runs there ({one_line(error.strerror)}); choose another one"
        ) from None
    failures: dict[str, str] = {}
    pool = [_start_worker(log) for _ in range(min(workers, len(waiting)))]
    try:
        with StopSignals() as signals:
            while any(worker.job for worker in pool) or (waiting and not signals.requested):
                for place, worker in enumerate(pool):
                    if worker.job is None and waiting and not signals.requested:
                        job = waiting.popleft()
                        display.begin(job)
                        pool[place] = _assign(job, worker, log)
                for ready in connection.wait([worker.pipe for worker in pool if worker.job], TICK_SECONDS):
                    _listen(next(worker for worker in pool if worker.pipe is ready), display, failures)
                display.tick()
                if signals.requested:
                    signals.saving()  # the workers save now, however long that takes
                    waiting.clear()
                    _ask_to_stop(pool, display, failures)
            return Outcome(failures, signals.requested)
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


def _listen(worker: Worker, display: Display, failures: dict[str, str]) -> None:
    job = worker.job
    assert job is not None
    try:
        kind, content = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        kind, content = "failed", f"its process exited with code {worker.process.exitcode}"
    if kind == "progress":
        display.progress(job, content)
        return
    worker.job = None
    if kind == "failed":
        failures[job.run_name] = content
        note_failure(job, content)
    display.end(job, content, failed=kind == "failed")


def _ask_to_stop(pool: list[Worker], display: Display, failures: dict[str, str]) -> None:
    """Ask through the pipe: Ctrl-C may have reached the workers already, and a second signal exits without saving."""
    for worker in pool:
        if worker.job is not None:
            _send(worker, "stop")  # if it has died, `_listen` notices next
    deadline = monotonic() + GRACE_SECONDS
    while any(worker.job for worker in pool) and monotonic() < deadline:
        for ready in connection.wait([worker.pipe for worker in pool if worker.job], TICK_SECONDS):
            _listen(next(worker for worker in pool if worker.pipe is ready), display, failures)
        display.tick()
    for worker in pool:
        worker.job = None


def _shut_down(pool: list[Worker]) -> None:
    for worker in pool:
        worker.pipe.close()  # an idle worker exits
        worker.process.join(1.0)
        if worker.process.is_alive():
            worker.process.terminate()


def serve(pipe: Connection, log: str) -> None:
    """The main loop of a worker. Output of environments and libraries goes to the log, not to the display."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a training run installs its own handlers
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        if isinstance(job, Job):
            try:
                pipe.send(_work(job, pipe))
            except OSError:
                return


def _work(job: Job, pipe: Connection) -> tuple[str, Any]:
    reported = monotonic()

    def watch(env_steps: int) -> bool:
        nonlocal reported
        if monotonic() - reported < REPORT_SECONDS:
            return True
        reported = monotonic()
        try:
            pipe.send(("progress", env_steps))
            return not pipe.poll()  # the only message to a busy worker is a request to stop
        except OSError:
            return False  # the parent is gone: save and exit

    try:
        train_and_score(job, watch)
    except Stopped as stopped:
        return "stopped", str(stopped)
    except RLTrainingError as error:
        return "failed", reason(error)
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {reason(error)} (see the traceback in {LOG})"
    return "done", None
