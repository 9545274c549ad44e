"""Run directories: one directory per run, and one writing process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage.durable_files import (
    atomic_write_text,
    free_name,
    make_directory,
    read_json,
    sync_directory,
)
from rl_training.text import one_line

__all__ = [
    "RunDirectory",
    "RunSummary",
    "atomic_write_text",
    "create_run_directory",
    "is_run_directory",
    "list_runs",
    "open_run_directory",
    "run_status",
]

STATUSES = ("running", "finished", "interrupted", "failed")
RUN_FILE = "run.json"
LOCK_FILE = "lock"
# `list_runs` holds the lock for a moment to check whether the run is alive.
LOCK_PATIENCE_SECONDS = 0.3
# Windows hides locked bytes from other processes; the process number at the start must stay readable.
_WINDOWS_LOCK_OFFSET = 2**20

_held_locks: set[int] = set()
_fork_hook_installed = False


@dataclass(frozen=True)
class RunDirectory:
    """One run: `path` contains its config, metrics, checkpoints and replay data."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def read_info(self) -> dict[str, Any]:
        """The content of run.json."""
        return _read_info(self.path)

    def update(self, **fields: Any) -> None:
        """Change fields of run.json atomically, for example `update(status="finished")`."""
        info = {**_read_info(self.path), **fields}
        if info.get("status") not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {info.get('status')!r}")
        try:
            atomic_write_text(self.path / RUN_FILE, json.dumps(info, indent=2) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"{self.path / RUN_FILE}: cannot be written ({one_line(error.strerror or error)}); free some space"
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Reserve the run for this process; a CheckpointError if another process has reserved it.

        The operating system releases the lock when its process dies, so there are no stale locks.
        """
        _close_locks_in_forked_children()
        try:
            descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot lock the run ({one_line(error.strerror)})") from None
        deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                os.lseek(descriptor, 0, os.SEEK_SET)
                owner = one_line(os.read(descriptor, 32).decode("ascii", "replace")) or "unknown"
                os.close(descriptor)
                raise CheckpointError(f"run {self.path} is in use by process {owner}; wait for it or stop it")
            time.sleep(0.02)
        _held_locks.add(descriptor)
        try:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, str(os.getpid()).encode("ascii"))
            yield
        finally:
            # In a forked child the descriptor is closed already, and its number may belong to another file.
            if descriptor in _held_locks:
                _held_locks.discard(descriptor)
                _unlock(descriptor)
                os.close(descriptor)


@dataclass(frozen=True)
class RunSummary:
    """One row in the list of runs. `status` is "interrupted" if the process died without writing its status."""

    name: str
    path: Path
    status: str
    created: str
    algorithm: str | None
    env: str | None
    seed: int | None
    total_timesteps: int | None


def create_run_directory(
    output_dir: str | Path,
    name: str,
    *,
    algorithm: str | None = None,
    env: str | None = None,
    seed: int | None = None,
    total_timesteps: int | None = None,
) -> RunDirectory:
    """Create a new directory for one run; a name that is taken gets the suffix `-2`, `-3`, ..."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", name):
        raise ConfigError(f"run_name: {one_line(name)!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
    output_dir = Path(output_dir)
    try:
        make_directory(output_dir)
        path = _make_exclusive(output_dir, name)
        sync_directory(output_dir)
        info = {
            "status": "running",
            "created": datetime.now(timezone.utc).isoformat(),
            "algorithm": algorithm,
            "env": env,
            "seed": seed,
            "total_timesteps": total_timesteps,
        }
        atomic_write_text(path / RUN_FILE, json.dumps(info, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(
            f"output_dir: cannot create a run in {output_dir} ({one_line(error.strerror)}); choose another directory"
        ) from None
    return RunDirectory(path)


def _make_exclusive(output_dir: Path, name: str) -> Path:
    while True:
        path = free_name(output_dir / name)
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:  # another process took the name in the meantime
            continue
        return path


def is_run_directory(path: str | Path) -> bool:
    """Whether `path` has a run.json or checkpoints."""
    path = Path(path)
    return (path / RUN_FILE).is_file() or (path / "checkpoints").is_dir()


def open_run_directory(path: str | Path) -> RunDirectory:
    """Open an existing run; a CheckpointError if `path` is not a run."""
    path = Path(path)
    if not is_run_directory(path):
        reason = "not a run directory" if path.exists() else "no such run directory"
        raise CheckpointError(f"{path}: {reason}; `rl-training list runs` shows the runs")
    return RunDirectory(path)


def list_runs(output_dir: str | Path) -> list[RunSummary]:
    """All runs in a directory, newest first. A run with an unreadable run.json has empty fields."""
    folder = Path(output_dir)
    if not folder.is_dir():
        return []
    runs = [_summarize(path) for path in folder.iterdir() if is_run_directory(path)]
    return sorted(runs, key=lambda run: (run.created, run.name), reverse=True)


def run_status(path: str | Path) -> str:
    """running, finished, interrupted or failed; a run whose process died is interrupted."""
    return _summarize(Path(path)).status


def _summarize(path: Path) -> RunSummary:
    info = _read_info(path)
    status = info.get("status")
    if status not in STATUSES:
        status = "unknown"
    if status == "running" and not _is_locked(path):
        status = "interrupted"
    created = info.get("created")
    if not isinstance(created, str):
        created = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).isoformat()
    return RunSummary(
        name=path.name,
        path=path,
        status=status,
        created=created,
        algorithm=_of_type(info.get("algorithm"), str),
        env=_of_type(info.get("env"), str),
        seed=_of_type(info.get("seed"), int),
        total_timesteps=_of_type(info.get("total_timesteps"), int),
    )


def _of_type(value: Any, kind: type) -> Any:
    return value if isinstance(value, kind) else None


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info = read_json(path / RUN_FILE)
    except CheckpointError:
        return {}
    return info if isinstance(info, dict) else {}


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        if not _try_lock(descriptor):
            return True
        _unlock(descriptor)
        return False
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _close_locks_in_forked_children() -> None:
    # A forked env worker inherits the lock. If it outlived a killed run, the run would stay locked.
    global _fork_hook_installed
    if not _fork_hook_installed and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_held_locks)
        _fork_hook_installed = True


def _close_held_locks() -> None:
    for descriptor in _held_locks:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held_locks.clear()
