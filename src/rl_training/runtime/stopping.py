"""Ctrl-C and SIGTERM: the first asks the run to save and stop, the second leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SECOND_SIGNAL_EXIT_CODE = 130
SHOW_CURSOR = b"\x1b[?25h"  # the live display hides it


class StopSignals:
    """While entered, `requested` tells whether a signal asked for the end.

    The second signal exits without cleaning up. That is safe: a checkpoint appears whole or not at all.
    Outside the main thread Python lets nobody install handlers; then nothing is requested.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), SHOW_CURSOR)
            os._exit(SECOND_SIGNAL_EXIT_CODE)
        self.requested = True

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
