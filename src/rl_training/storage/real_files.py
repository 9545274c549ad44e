"""Files and directories that are what they seem: whatever a run writes stays inside its directory.

A run directory may come from a stranger. A link in it could lead a write to any file of the user, and a pipe could make
it wait forever. So the library opens files for writing only here. New files and directories get the modes below, less
the bits of the umask: no one else may write to them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from pathlib import Path
from typing import IO, Any

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755

# Windows has neither flag. There the check before the call must do.
_NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)  # a pipe without a reader fails at once

_CURRENT_DIRECTORY = -100  # AT_FDCWD
_SWAP = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS


def why_not_own_file(path: Path) -> str | None:
    """Why writing to `path` could change something else than a file with this name only; None if it cannot."""
    try:
        return _why_not_own_file(os.lstat(path))
    except FileNotFoundError:
        return None


def _why_not_own_file(status: os.stat_result) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    return "it is a hard link" if status.st_nlink > 1 else None


def why_not_own_directory(path: Path) -> str | None:
    """Why a directory could be somewhere else than its name says; None if it is real, or missing."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        return "it is a symbolic link"
    return None if stat.S_ISDIR(mode) else "it is not a directory"


def refusal(path: Path, why: str) -> OSError:
    """The error of a write that was not done."""
    return OSError(errno.EPERM, f"refused, {why}", str(path))


def open_own_descriptor(path: Path, flags: int, mode: int = FILE_MODE) -> int:
    """`os.open` for a regular file with one name; an OSError for links, pipes, devices and directories."""
    why = why_not_own_file(path)
    if why is None:
        descriptor = _open_without_following(path, flags, mode)
        why = _why_not_own_file(os.fstat(descriptor))  # it may have changed since the first look
        if why is None:
            return descriptor
        os.close(descriptor)
    raise refusal(path, why)


def open_own_file(path: Path, mode: str, **options: Any) -> IO[Any]:
    """`open` for writing to a regular file with one name; an OSError for links, pipes, devices and directories."""
    if "w" in mode:
        raise ValueError("mode 'w' empties a file before it is checked; use 'x', 'a' or 'r+'")
    why = why_not_own_file(path)
    if why is None:
        file = open(path, mode, opener=_open_without_following, **options)  # noqa: SIM115
        why = _why_not_own_file(os.fstat(file.fileno()))
        if why is None:
            return file
        file.close()
    raise refusal(path, why)


def _open_without_following(path: str | Path, flags: int, mode: int = FILE_MODE) -> int:
    return os.open(path, flags | _NO_FOLLOW | _NO_WAIT, mode)


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step, so that a kill leaves no moment without either; False where that is impossible."""
    names = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform == "linux":
            rename = ctypes.CDLL(None).renameat2
            return bool(rename(_CURRENT_DIRECTORY, names[0], _CURRENT_DIRECTORY, names[1], _SWAP) == 0)
        if sys.platform == "darwin":
            return bool(ctypes.CDLL(None).renamex_np(*names, _SWAP) == 0)
    except (OSError, AttributeError):  # a C library without this function
        pass
    return False
