"""Where and how a session of a run ran: command, code, machine and versions, for run.json.

It is for people and for `rl-training diff`. It contains no environment variables, is made without a network, and
nothing in a run depends on it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rl_training._version import __version__
from rl_training.storage.command_words import LONGEST_COMMAND, command_text
from rl_training.storage.git_state import git_state
from rl_training.text import clean_text, one_line

SESSIONS_FIELD = "sessions"  # in run.json
MOST_SESSIONS = 20
MOST_VERSIONS = 200
LONGEST_TEXT = 200
GIT_SECONDS = 10.0  # runs that start within this time share an answer of git
_FOR_DEVELOPERS = re.compile(r"extra\s*==\s*['\"](dev|bench)['\"]")
_DISTRIBUTION = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info")

Record = dict[str, Any]


def describe_session(from_step: int) -> Record:
    """The record of a session that starts now, in this process, at `from_step` environment steps."""
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "from_step": from_step,
        "command": command_text(),
        "git": _recent_git_state(_working_directory()),
        "package_git": _recent_git_state(_package_checkout()),
        "host": one_line(socket.gethostname(), LONGEST_TEXT),
        **_machine(),
        "versions": versions(),
    }


def with_session(sessions: Sequence[Record] | None, record: Record) -> list[Record]:
    """`sessions` and one more. Of too many, the first one and the newest are kept."""
    every = [*(sessions or ()), record]
    return every if len(every) <= MOST_SESSIONS else [every[0], *every[1 - MOST_SESSIONS :]]


def versions() -> dict[str, str]:
    """Versions of Python, of this package, of its dependencies and of the other packages that are loaded."""
    installed = _installed()
    loaded = {_normal(name) for name in tuple(sys.modules) if "." not in name}
    names = sorted((loaded | _required()) & set(installed) - {"rl-training"})[: MOST_VERSIONS - 2]
    own = {"python": platform.python_version(), "rl-training": __version__}
    return own | {name: installed[name] for name in names}


@cache
def _installed() -> dict[str, str]:
    """Distributions by name, from the names of their directories: reading each one's metadata takes much longer."""
    found: dict[str, str] = {}
    for folder in sys.path:
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                match = _DISTRIBUTION.fullmatch(entry.name)
                if match is not None:
                    found.setdefault(_normal(match["name"]), clean_text(match["version"], LONGEST_TEXT))
    return found


@cache
def _required() -> frozenset[str]:
    """The packages that this one names as dependencies, with its extras for users."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        lines = [line for line in metadata.requires("rl_training") or [] if not _FOR_DEVELOPERS.search(line)]
        return frozenset(_normal(match[0]) for line in lines if (match := re.match(r"[A-Za-z0-9_.\-]+", line)))
    return frozenset()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _machine() -> Record:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = one_line(f"{platform.system()} {platform.release()}", LONGEST_TEXT)
    return {"processor": one_line(_processor(), LONGEST_TEXT), "cores": cores, "system": system}


def _processor() -> str:
    """The model of the processor, or its architecture where the system does not say more."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file.read(20_000).splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value
    return platform.processor() or platform.machine()


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None


def _package_checkout() -> Path | None:
    """The checkout that this package is run from; None if it is installed as a copy."""
    source = Path(__file__).resolve().parents[2]
    return source.parent if source.name == "src" and os.path.lexists(source.parent / ".git") else None


_answers: dict[Path, tuple[float, Record | None]] = {}


def _recent_git_state(folder: Path | None) -> Record | None:
    if folder is None:
        return None
    now = time.monotonic()
    if folder not in _answers or now - _answers[folder][0] > GIT_SECONDS:
        _answers[folder] = (now, git_state(folder))
    return _answers[folder][1]


def valid_sessions(value: Any) -> list[Record] | None:
    """The sessions in a run.json, without fields that have a wrong type; None if there are none."""
    if not isinstance(value, list):
        return None
    found = [_valid_record(each) for each in value[:MOST_SESSIONS] if isinstance(each, dict)]
    return found or None


def _valid_record(record: Mapping[str, Any]) -> Record:
    checked = {name: check(record.get(name)) for name, check in _CHECKS.items()}
    return {name: value for name, value in checked.items() if value is not None}


def _text(limit: int) -> Callable[[Any], str | None]:
    return lambda value: clean_text(value, limit) if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _git(value: Any) -> Record | None:
    if not isinstance(value, dict) or not isinstance(value.get("commit"), str):
        return None
    dirty = value.get("dirty")
    return {"commit": clean_text(value["commit"], 64), "dirty": dirty if isinstance(dirty, bool) else None}


def _versions(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    pairs = list(value.items())[:MOST_VERSIONS]
    return {
        clean_text(name, LONGEST_TEXT): clean_text(text, LONGEST_TEXT) for name, text in pairs if isinstance(text, str)
    }


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "started": _text(LONGEST_TEXT),
    "from_step": _count,
    "command": _text(LONGEST_COMMAND),
    "git": _git,
    "package_git": _git,
    "host": _text(LONGEST_TEXT),
    "processor": _text(LONGEST_TEXT),
    "cores": _count,
    "system": _text(LONGEST_TEXT),
    "versions": _versions,
}
