"""Whether checkpoints verify, remembered: a checkpoint is hashed once, not at every look."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from rl_training.storage.checkpoints import verify_checkpoint

MOST_REMEMBERED = 5000


class CheckpointVerdicts:
    """The problems of checkpoints, by path and by the stamps of their files. Of replay data, only sizes are checked:
    hashing gigabytes would take the disk from a run."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[tuple[str, int, int, int], ...]], list[str]] = {}
        self._lock = threading.Lock()

    def __call__(self, path: Path) -> list[str]:
        key = (str(path), _stamps(path))
        with self._lock:
            if key in self._known:
                return self._known[key]
        problems = verify_checkpoint(path, segments="size")
        with self._lock:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = problems
        return problems


def _stamps(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Name, inode, size and time of each file of a checkpoint and of the replay data beside it."""
    found = []
    for place in (folder, folder.parent.parent / "replay"):
        try:
            with os.scandir(place) as entries:
                statuses = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        except OSError:
            continue
        found += [(name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in statuses]
    return tuple(sorted(found))
