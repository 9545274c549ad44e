"""Waiting for events. A busy machine must not fail a test, so every deadline is minutes: it only ends a hang."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 300.0


def wait_until(
    condition: Callable[[], bool],
    seconds: float = DEADLINE_SECONDS,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Return as soon as `condition` holds. `check` runs in between; it may raise if waiting is pointless."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)
