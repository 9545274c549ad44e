"""The lock of a run: one writing process at a time. The operating system releases it when that process dies."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rl_training.errors import CheckpointError
from rl_training.storage.real_files import open_own_descriptor
from rl_training.text import one_line

LOCK_FILE = "lock"
# Listing runs holds the lock for a moment to check whether the run is alive.
PATIENCE_SECONDS = 0.3
# Windows hides locked bytes from other processes; the process number at the start must stay readable.
_WINDOWS_LOCK_OFFSET = 2**20

_held: set[int] = set()
_fork_hook_installed = False


def acquire(run_dir: Path) -> int:
    """Lock a run and return the descriptor. A CheckpointError if another process has it, an OSError if that fails."""
    return _acquire(run_dir / LOCK_FILE, f"run {run_dir}", PATIENCE_SECONDS)


@contextlib.contextmanager
def hold_lock(path: Path, name: str, patience: float) -> Iterator[None]:
    """Hold the lock file at `path`; a CheckpointError about `name` if another process has it for longer."""
    try:
        descriptor = _acquire(path, name, patience)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot lock {name} ({one_line(error.strerror)})") from None
    try:
        yield
    finally:
        release(descriptor)


def _acquire(path: Path, name: str, patience: float) -> int:
    descriptor = open_own_descriptor(path, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + patience
    while not _try_lock(descriptor):
        if time.monotonic() > deadline:
            os.lseek(descriptor, 0, os.SEEK_SET)
            owner = one_line(os.read(descriptor, 32).decode("ascii", "replace")) or "unknown"
            os.close(descriptor)
            raise CheckpointError(f"{name} is in use by process {owner}; wait for it or stop it")
        time.sleep(0.02)
    with contextlib.suppress(OSError):  # on a full disk the number is missing, but the lock holds
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode("ascii"))
    return hold(descriptor)


def is_locked(run_dir: Path) -> bool:
    """Whether a living process has locked the run. Works on a disk that can only be read, too."""
    try:
        descriptor = open_own_descriptor(run_dir / LOCK_FILE, _READING)
    except OSError:
        return False
    try:
        if not _try_share(descriptor):
            return True
        _unlock(descriptor)
        return False
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file or directory still has this name; True while the disk gives no answer."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def hold(descriptor: int) -> int:
    """Keep a descriptor open in this process, but not in forked children. `release` closes it."""
    _close_held_in_forked_children()
    _held.add(descriptor)
    return descriptor


def release(descriptor: int | None) -> None:
    """Unlock and close a held descriptor."""
    # In a forked child the descriptor is closed already, and its number may belong to another file.
    if descriptor is not None and descriptor in _held:
        _held.discard(descriptor)
        with contextlib.suppress(OSError):
            _unlock(descriptor)  # closing alone would not: a child of a C library may still have the descriptor
        os.close(descriptor)


def _close_held_in_forked_children() -> None:
    # A forked env worker inherits the lock. If it outlived a killed run, the run would stay locked.
    global _fork_hook_installed
    if not _fork_hook_installed and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_held)
        _fork_hook_installed = True


def _close_held() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if sys.platform == "win32":
    import msvcrt

    _READING = os.O_RDWR  # a file that is open for reading cannot be locked

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    _try_share = _try_lock

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    _READING = os.O_RDONLY

    def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _try_share(descriptor: int) -> bool:
        """Several readers that look at once do not take each other for the writer."""
        return _try_lock(descriptor, fcntl.LOCK_SH)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
