"""The processor time that other programs take on this machine while something is measured (Linux)."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from rl_training.envs.processes.process_tree import descendants

MOST_LOAD = 0.1  # in cores: a run with more of it is repeated, or marked
IDLE_FIELDS = (3, 4)  # of a line of /proc/stat: idle and waiting for the disk
GUEST_FIELDS = 8  # from here on: time of virtual machines, which the first fields include


class ForeignLoad:
    """Measures from its creation on. A hypervisor that takes the processor away counts as foreign, too."""

    def __init__(self) -> None:
        self._started, self._busy, self._own = time.monotonic(), busy_seconds(), _reaped_seconds()

    def cores(self, process: int | None = None) -> float | None:
        """The cores that others kept busy on average; None where the system does not tell.

        Not foreign: this process, its children that have ended, and `process` with all its descendants.
        """
        busy, elapsed = busy_seconds(), time.monotonic() - self._started
        if busy is None or self._busy is None or elapsed <= 0:
            return None
        own = _reaped_seconds() - self._own + (0.0 if process is None else family_seconds(process))
        return max(0.0, (busy - self._busy - own) / elapsed)


def busy_seconds() -> float | None:
    """Processor seconds of all programs since the start of the machine, on the cores that this process may use."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    ticks = 0
    for line in lines:
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdigit() and (allowed is None or int(number) in allowed):
            ticks += sum(int(text) for place, text in enumerate(fields[:GUEST_FIELDS]) if place not in IDLE_FIELDS)
    return ticks / os.sysconf("SC_CLK_TCK")


def family_seconds(process: int) -> float:
    """Processor seconds of a process and its descendants so far, with those that have ended."""
    ticks = 0
    for number in (process, *descendants(process)):
        with contextlib.suppress(OSError, ValueError):
            text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))  # own and of children that were waited for
    return ticks / os.sysconf("SC_CLK_TCK")


def _reaped_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])
