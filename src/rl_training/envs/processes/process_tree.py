"""Families of processes: find and end what an env has started, and learn of a parent's death.

Linux lists all processes in /proc and can hand orphans to an ancestor. Elsewhere only process groups are known: a
program that leaves the group of its env is not found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PROC = "/proc"


class Process(NamedTuple):
    """The part of a process's entry in /proc that says where it belongs."""

    state: str
    parent: int
    group: int
    session: int


def running_processes() -> dict[int, Process]:
    """Every process of this machine that is visible and has not ended; empty on systems without /proc."""
    numbers = []
    with contextlib.suppress(OSError):
        numbers = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    entries = {number: _entry(number) for number in numbers}
    return {number: entry for number, entry in entries.items() if entry is not None}


def _entry(process: int) -> Process | None:
    """None if the process has ended; a zombie has, too."""
    try:
        with open(f"{PROC}/{process}/stat", encoding="utf-8", errors="replace") as file:
            # The second field is the name of the program, which may contain anything.
            state, *numbers = file.read().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else Process(state, *map(int, numbers))


def has_ended(process: int) -> bool:
    """Whether a process is known to have ended: False on systems without /proc."""
    return os.path.exists(f"{PROC}/self/stat") and _entry(process) is None


def descendants(root: int) -> list[int]:
    """The children of a process, their children and so on. The root itself may have ended."""
    children: dict[int, list[int]] = {}
    for process, entry in running_processes().items():
        children.setdefault(entry.parent, []).append(process)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def session_members(session: int) -> list[int]:
    return [process for process, entry in running_processes().items() if entry.session == session]


def end_session(session: int, seconds: float) -> None:
    """Kill every process of a session, and those that it starts meanwhile, within `seconds`."""
    deadline = time.monotonic() + seconds
    while (members := session_members(session)) and time.monotonic() < deadline:
        kill(members)
        time.sleep(0.01)


def end_family(process: int) -> None:
    """Kill a process, its process group and its descendants, wherever they have gone."""
    family = descendants(process)  # first: when the parent has ended, nothing connects them to it
    kill([process])
    end_group(process)
    kill(family)


def end_children() -> None:
    """Kill all descendants of this process (Linux)."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    spared = getattr(tracker, "_pid", None)  # it removes shared memory when this process has ended
    kill(process for process in descendants(os.getpid()) if process != spared)


def end_group(group: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of all descendants whose own parent ends (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def on_parents_death(number: int) -> None:
    """Let the kernel send a signal to this process when its parent ends (Linux)."""
    _prctl(PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
