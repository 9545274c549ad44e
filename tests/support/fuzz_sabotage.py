"""Functions in place of the CLI that break one invariant each, to show that the fuzzer notices."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SHORT_IDLE_SECONDS = 3.0  # some of them wait on purpose


def _say(text: str, code: int = 0) -> int:
    print(text)
    return code


def _complain(text: str, code: int = 2) -> int:
    print(text, file=sys.stderr)
    return code


def _work(seconds: float) -> int:
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))
    return 0


def _fill(megabytes: int) -> int:
    return 0 * len(b"x" * (megabytes * 2**20))


def _write_outside() -> int:
    Path("../outside/new").touch()
    return 0


def _change_outside() -> int:
    with Path("../outside/canary").open("r+b") as file:
        file.write(b"X")
    return 0


def _read_what_is_forbidden() -> int:
    path = Path("../scratch/secret")
    path.touch()
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        return _complain("error: refused\n1\n2\n3")  # the violation that the test waits for
    return 0


def _leave_a_process() -> int:
    subprocess.Popen(["sleep", "1000"])
    return 0


def _wait_for_a_pipe() -> int:
    os.mkfifo("../scratch/pipe")
    return _say(Path("../scratch/pipe").read_text())


SABOTAGE: dict[str, Callable[[], int]] = {
    "raises": lambda: int("x"),
    "exit code 7": lambda: _complain("error: unknown", 7),
    "fails without a word": lambda: 2,
    "prints four lines": lambda: _complain("error:\n1\n2\n3"),
    "prints an escape": lambda: _say("\x1b[31m"),
    "prints a C1 control": lambda: _complain("\x9b31m"),
    "reverses a line": lambda: _say("\u202e"),
    "works for three seconds": lambda: _work(3.0),
    "works for ever": lambda: _work(1000.0),
    "uses 250 MB": lambda: _fill(250),
    "writes outside": _write_outside,
    "changes a file outside": _change_outside,
    "may not read what is forbidden": _read_what_is_forbidden,
    "leaves a process": _leave_a_process,
    "waits for a pipe": _wait_for_a_pipe,
}
