"""A dashboard in a process of its own, as a user starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """A dashboard of `folder` in a process of its own: its address and its process id."""
    command = [sys.executable, "-m", "rl_training", "dashboard", "--output-dir", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert match is not None
        yield match[0], process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
