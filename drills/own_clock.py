"""A clock that stands still while the processes that it watches wait for a processor.

A drill that measures how long a process takes to exit must not measure what else the machine does. Linux counts for
each thread how long it was ready to run and had no processor (`/proc/PID/task/TID/schedstat`). Sleeping, waiting for a
lock and waiting for a disk are not counted there: a process that hangs is found in the same time on a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from types import TracebackType

from rl_training.envs.processes.process_tree import descendants
from spawning_env import is_running

SAMPLE_SECONDS = 0.02


class OwnClock:
    """Seconds since the start of the `with` block, less those in which a watched process waited for a processor.

    It watches a process and all its descendants, and also the processes `others`.
    """

    def __init__(self, process: int, others: list[int] | None = None) -> None:
        self._process, self._others = process, list(others or ())
        self._waited = 0.0
        self._started = self._looked = time.monotonic()
        self._delays = self._look()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> OwnClock:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """It looks first: of the time since the last look, nobody knows yet who has waited."""
        with self._lock:
            self._count()
            return self._looked - self._started - self._waited

    @property
    def wall_seconds(self) -> float:
        return time.monotonic() - self._started

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            with self._lock:
                self._count()

    def _count(self) -> None:
        now, delays = time.monotonic(), self._look()
        longest = max((delay - self._delays.get(task, delay) for task, delay in delays.items()), default=0.0)
        self._waited += min(longest, now - self._looked)  # processes that wait at the same time wait once
        self._looked, self._delays = now, delays

    def _look(self) -> dict[Path, float]:
        found = {}
        for process in {self._process, *self._others, *descendants(self._process)}:
            for task in Path(f"/proc/{process}/task").glob("*/schedstat"):
                try:
                    found[task] = int(task.read_text().split()[1]) / 1e9
                except (OSError, IndexError, ValueError):  # it has ended, or the kernel does not count
                    continue
        return found


def left_after(seconds: float, processes: list[int]) -> int:
    """How many of these processes still run after `seconds` on their own clock; none runs on after that."""
    with OwnClock(os.getpid(), processes) as clock:
        while (left := [process for process in processes if is_running(process)]) and clock.seconds < seconds:
            time.sleep(SAMPLE_SECONDS)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(left)
