"""Ctrl-C and SIGTERM: the first signal asks the run to save and stop, the second one exits at once.

Work in progress is finished first, within limits: a rollout that takes longer is dropped (nothing has been learned from
it yet), and the command line exits without a save if even that does not end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from rl_training.errors import EXIT_INTERRUPTED, EXIT_RESUMABLE

SHOW_CURSOR = b"\x1b[?25h"  # the live display hides it
ROLLOUT_GRACE_SECONDS = 3.0
# Together with a save this stays below 10 seconds; job schedulers usually grant 30.
STUCK_SECONDS = 8.0

_may_exit = False


def exit_when_stuck() -> None:
    """Let a stuck run end the process. This is for the command line, not for programs and notebooks."""
    global _may_exit
    _may_exit = True


class StopSignals:
    """While entered, `requested` says whether a signal asked the run to stop.

    The second signal exits without cleaning up. That is safe: a checkpoint appears whole or not at all.
    Python allows handlers in the main thread only; in other threads nothing is ever requested.
    """

    def __init__(self, has_checkpoint: bool = False) -> None:
        self.requested = False
        self.has_checkpoint = has_checkpoint  # whether `resume` can continue a run that exits without a save
        self._requested_at = 0.0
        self._stuck: threading.Timer | None = None
        self._previous: dict[int, Any] = {}

    def overdue(self) -> bool:
        """Whether the signal came so long ago that a rollout is not worth waiting for."""
        return self.requested and time.monotonic() - self._requested_at > ROLLOUT_GRACE_SECONDS

    def saving(self) -> None:
        """Work in progress has ended. From here on the last save takes the time it needs."""
        if self._stuck is not None:
            self._stuck.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            _exit(EXIT_INTERRUPTED)
        self.requested, self._requested_at = True, time.monotonic()
        if _may_exit:
            self._stuck = threading.Timer(STUCK_SECONDS, self._exit_stuck, [number])
            self._stuck.daemon = True
            self._stuck.start()

    def _exit_stuck(self, number: int) -> None:
        reason = f"no step or update ended within {STUCK_SECONDS:.0f} seconds of the signal: exited without saving"
        if self.has_checkpoint:
            _exit(EXIT_RESUMABLE, f"{reason}; `rl-training resume` continues from the last checkpoint\n")
        _exit(128 + number, f"{reason}; nothing had been saved yet\n")

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.saving()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _exit(code: int, text: str = "") -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), SHOW_CURSOR)
    if text:
        os.write(2, text.encode())
    os._exit(code)
