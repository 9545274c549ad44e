"""Ctrl-C, SIGTERM and a closed terminal: the first signal asks the run to save and stop, the second one exits at once.

Work in progress is finished first, within limits: a rollout that takes longer is dropped (nothing has been learned from
it yet), and the command line exits without a save if even that does not end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from rl_training.envs.processes.process_tree import end_children
from rl_training.errors import EXIT_INTERRUPTED, EXIT_RESUMABLE
from rl_training.program import call

SHOW_CURSOR = b"\x1b[?25h"  # the live display hides it
ROLLOUT_GRACE_SECONDS = 3.0
# Together with a save this stays below 10 seconds; job schedulers usually grant 30.
STUCK_SECONDS = 8.0
LAST_SECONDS = 1.0  # for the callbacks after the last save, if that took long
# SIGHUP: the terminal was closed, or the connection to it was lost. Not every system has it.
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_may_exit = False


def exit_when_stuck() -> None:
    """Let a stuck run end the process. This is for the command line, not for programs and notebooks.

    Programs that envs have started in this process then end with it, however it ends (except by kill -9).
    """
    global _may_exit
    if not _may_exit:
        # Handlers run in reverse order: this one after those of the libraries that a run imports.
        atexit.register(end_children)
    _may_exit = True


class StopSignals:
    """While entered, `requested` says whether a signal asked the run to stop.

    The second signal exits without cleaning up. That is safe: a checkpoint appears whole or not at all.
    Python allows handlers in the main thread only; in other threads nothing is ever requested.
    A run under `nohup` is not stopped by SIGHUP.
    """

    def __init__(self, has_checkpoint: bool = False, kept: str | None = None) -> None:
        self.requested = False
        self.has_checkpoint = has_checkpoint  # whether `resume` can continue a run that exits without a save
        self._kept = kept  # for a program that is not a run: what an exit without a save leaves
        self._requested_at = 0.0
        self._stuck: threading.Timer | None = None
        self._previous: dict[int, Any] = {}
        self._terminals: list[int] = []

    def overdue(self) -> bool:
        """Whether the signal came so long ago that a rollout is not worth waiting for."""
        return self.requested and time.monotonic() - self._requested_at > ROLLOUT_GRACE_SECONDS

    def saving(self) -> None:
        """Work in progress has ended. From here on the last save takes the time it needs."""
        if self._stuck is not None:
            self._stuck.cancel()

    def saved(self) -> None:
        """A save is done. After the last one, callbacks may still run, and one that hangs must not keep the process."""
        if self.requested and self._stuck is not None and self._stuck.finished.is_set():
            left = STUCK_SECONDS - (time.monotonic() - self._requested_at)
            self._start_timer(max(left, LAST_SECONDS), self._exit_saved, [])

    def _start_timer(self, seconds: float, function: Callable[..., None], arguments: list[int]) -> None:
        self._stuck = threading.Timer(seconds, function, arguments)
        self._stuck.daemon = True
        self._stuck.start()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._leave_closed_terminal()
        if self.requested:
            _exit(EXIT_INTERRUPTED, f"second signal: exited at once, without saving; {self._what_is_kept()}\n")
        self.requested, self._requested_at = True, time.monotonic()
        if _may_exit:
            self._start_timer(STUCK_SECONDS, self._exit_stuck, [number])

    def _exit_stuck(self, number: int) -> None:
        reason = f"no step or update ended within {STUCK_SECONDS:.0f} seconds of the signal: exited without saving"
        code = EXIT_RESUMABLE if self.has_checkpoint else 128 + number
        _exit(code, f"{reason}; {self._what_is_kept()}\n")

    def _exit_saved(self) -> None:
        what = f"a callback did not end within {STUCK_SECONDS:.0f} seconds of the signal: exited"
        _exit(EXIT_RESUMABLE, f"{what}; the run is saved, and `{call('resume')}` continues it\n")

    def _what_is_kept(self) -> str:
        if self._kept is not None:
            return self._kept
        if self.has_checkpoint:
            return f"`{call('resume')}` continues from the last checkpoint"
        return "nothing had been saved yet"

    def _leave_closed_terminal(self) -> None:
        """Write to nowhere instead of a terminal that is gone: every write to it fails, also that of the result."""
        for stream in self._terminals:
            with contextlib.suppress(OSError):
                try:
                    os.get_terminal_size(stream)
                except OSError:
                    nowhere = os.open(os.devnull, os.O_RDWR)
                    os.dup2(nowhere, stream)
                    os.close(nowhere)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]
            for number in STOP_SIGNALS:
                # `nohup` ignores SIGHUP. A script ignores SIGINT for its background jobs, but those must save too.
                if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.saving()
        self._leave_closed_terminal()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _exit(code: int, text: str = "") -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(sys.stderr.fileno(), SHOW_CURSOR)
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    if _may_exit:
        end_children()
    os._exit(code)
