"""Ctrl-C outside training: exit code 130 and no traceback, from the first import to the last line of output.

`runtime/stop_signals.py` handles the signals of a run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from rl_training.errors import EXIT_INTERRUPTED

_received = False


def take_over() -> None:
    """Let Ctrl-C end this process at once, for as long as there is nothing to clean up.

    A KeyboardInterrupt is not enough while modules are imported: native modules turn it into an ImportError, and
    callbacks of the interpreter print it.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    # A process in the background of a shell ignores Ctrl-C, and must continue to.
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


@contextlib.contextmanager
def clean_up() -> Iterator[None]:
    """In this block Ctrl-C raises KeyboardInterrupt, so that environments and files are closed. A second one exits."""
    if signal.getsignal(signal.SIGINT) is not _exit:
        yield
        return
    signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _exit)


def received() -> bool:
    """Whether Ctrl-C came inside `clean_up`. An error after it is a consequence, such as an import cut short."""
    return _received


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> None:
    global _received
    if _received:
        _exit(number, frame)
    _received = True
    raise KeyboardInterrupt
