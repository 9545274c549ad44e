"""Commit and state of a git checkout, asked of git within a deadline. Nothing is written and nothing is fetched."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 1.0  # for all questions together; a huge checkout on a slow disk has no `dirty`
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# A checkout may come from a stranger. These settings of it, or of a file that it includes, name commands that git runs.
_COMMANDS = re.compile(r"^(local|worktree)\t(filter|diff|include|includeif)\.", re.MULTILINE)
_SAFE = (
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "protocol.allow=never",
)


def git_state(folder: Path) -> dict[str, Any] | None:
    """{"commit": ..., "dirty": ...} of the checkout around a directory; None if there is none.

    `dirty` says whether a tracked file differs from the commit. It is None if git does not answer in time, or if the
    checkout defines commands that would run.
    """
    if not any(os.path.lexists(parent / ".git") for parent in (folder, *folder.parents)):
        return None  # the usual case costs no process
    deadline = time.monotonic() + DEADLINE_SECONDS
    commit = (_ask(folder, deadline, "rev-parse", "--verify", "HEAD") or (1, ""))[1].strip()
    if not _COMMIT.fullmatch(commit):
        return None
    settings = _ask(folder, deadline, "config", "--list", "--includes", "--show-scope", "--name-only")
    if settings is None or settings[0] != 0 or _COMMANDS.search(settings[1]):
        return {"commit": commit, "dirty": None}
    # `git diff --quiet` would do less, but it writes the index.
    changes = _ask(folder, deadline, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return {"commit": commit, "dirty": None if changes is None or changes[0] != 0 else bool(changes[1])}


def _ask(folder: Path, deadline: float, *words: str) -> tuple[int, str] | None:
    """Exit code and output of a git command; None if it cannot be run or takes too long."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        answer = subprocess.run(
            ["git", *_SAFE, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=max(0.01, deadline - time.monotonic()),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.returncode, answer.stdout.decode("utf-8", "replace")
