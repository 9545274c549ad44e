"""Ctrl-C and SIGTERM: the first asks the run to save and stop, the second leaves at once.

What is under way is finished first, but not for ever: a rollout that goes on for longer is dropped (nothing has been
learned from it yet), and the command line leaves without a save when even that does not come to an end.
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
    """Let a stuck run end the process; for the command line, not for a program or notebook that calls us."""
    global _may_exit
    _may_exit = True


class StopSignals:
    """While entered, `requested` tells whether a signal asked for the end.

    The second signal exits without cleaning up. That is safe: a checkpoint appears whole or not at all.
    Outside the main thread Python lets nobody install handlers; then nothing is requested.
    """

    def __init__(self) -> None:
        self.requested = False
        self.has_checkpoint = False  # of the run: whether leaving without a save can be made good by `resume`
        self._requested_at = 0.0
        self._stuck: threading.Timer | None = None
        self._previous: dict[int, Any] = {}

    def overdue(self) -> bool:
        """Whether a signal came so long ago that a rollout is not worth waiting for."""
        return self.requested and time.monotonic() - self._requested_at > ROLLOUT_GRACE_SECONDS

    def saving(self) -> None:
        """What was under way has come to an end: the last save takes the time it needs."""
        if self._stuck is not None:
            self._stuck.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            _leave(EXIT_INTERRUPTED)
        self.requested, self._requested_at = True, time.monotonic()
        if _may_exit:
            self._stuck = threading.Timer(STUCK_SECONDS, self._give_up, [number])
            self._stuck.daemon = True
            self._stuck.start()

    def _give_up(self, number: int) -> None:
        reason = f"no step or update ended within {STUCK_SECONDS:.0f} seconds of the signal: left without saving"
        if self.has_checkpoint:
            _leave(EXIT_RESUMABLE, f"{reason}; `rl-training resume` goes on from the last checkpoint\n")
        _leave(128 + number, f"{reason}; nothing had been saved yet\n")

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


def _leave(code: int, text: str = "") -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(sys.stderr.fileno(), SHOW_CURSOR)
    if text:
        os.write(2, text.encode())
    os._exit(code)
