"""Files that survive a crash: synced writes, cleanup after dead writers, JSON with limits. Never pickle."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.storage.real_files import DIRECTORY_MODE, open_own_file, refusal, why_not_own_directory
from rl_training.text import one_line

# These limits keep the memory for a hostile file below 200 MB: `{"a":0}` needs 30 times its length in memory.
MAX_JSON_BYTES = 16 * 2**20
MAX_JSON_VALUES = 500_000
MAX_JSON_DEPTH = 100

USE_ANOTHER = "; use another checkpoint"  # the advice at the end of a message about a damaged file
CRASH_VARIABLE = "RL_TRAINING_CRASH_AT"
_TEMPORARY = re.compile(r"\.(?P<purpose>[a-z]+)-(?P<name>.+)-(?P<process>[0-9]{1,20})-[0-9a-f]{8}", re.DOTALL)
_live_temporaries: set[str] = set()
_live_guard = threading.Lock()


def crash_point(name: str) -> None:
    """Test hook: exit here, as in a power failure, if RL_TRAINING_CRASH_AT names this point."""
    if os.environ.get(CRASH_VARIABLE) == name:
        os._exit(137)


def free_name(path: Path, *, suffix: str = "", first: int = 2) -> Path:
    """`path` + `suffix` if that name is free, otherwise the first free one of `path-2`, `path-3`, ... + `suffix`."""
    numbered = (f"{path.name}-{number}" for number in itertools.count(first))
    candidates = (path.with_name(name + suffix) for name in itertools.chain([path.name], numbered))
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))


def sync_directory(path: Path) -> None:
    """Make the names inside a directory durable. Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents durably: files are lost if the name of their directory is lost."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process may create it at the same time
            os.mkdir(folder, DIRECTORY_MODE)
        sync_directory(folder.parent)


def make_own_directory(path: Path) -> Path:
    """Create a directory durably, or check that it is real: an OSError if it is a link or if its parent is missing."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        why = why_not_own_directory(path)
        if why is not None:
            raise refusal(path, why) from None
    else:
        sync_directory(path.parent)
    return path


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file; its content is on the disk when this returns."""
    with open_own_file(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def atomic_write_text(path: str | Path, text: str) -> None:
    """Replace a file so that readers, even after a crash, see either the old text or the new text."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_bytes(path: str | Path, content: bytes) -> None:
    """As `atomic_write_text`, for content that is not text."""
    path = Path(path)
    temporary = temporary_sibling(path)
    try:
        write_synced(temporary, content)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        release_temporary(temporary)


def temporary_sibling(path: Path, purpose: str = "tmp") -> Path:
    """An unused name next to `path`, on the same file system, that `remove_leftovers` recognizes."""
    name = f".{purpose}-{path.name}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with _live_guard:
        _live_temporaries.add(name)
    return path.with_name(name)


def release_temporary(path: Path) -> None:
    """Declare that this process no longer writes to a temporary name."""
    with _live_guard:
        _live_temporaries.discard(path.name)


def remove_leftovers(directory: Path, *names: str, prefixes: tuple[str, ...] = ()) -> None:
    """Remove what dead writers of `names`, or of names that start with one of `prefixes`, have left in a directory."""
    for entry in leftovers(directory, *names, prefixes=prefixes):
        remove_tree(entry)


def leftovers(
    directory: Path, *names: str, prefixes: tuple[str, ...] = (), purposes: tuple[str, ...] = ("tmp", "trash")
) -> Iterator[Path]:
    """The temporary files of dead writers. The name must fit exactly: the directory may be the user's own."""
    if not directory.is_dir():
        return
    for entry in list(directory.iterdir()):
        match = _TEMPORARY.fullmatch(entry.name)
        if match is None or match["purpose"] not in purposes:
            continue
        ours = match["name"] in names or match["name"].startswith(prefixes)
        if ours and not _writer_is_alive(entry.name, int(match["process"])):
            yield entry


def _writer_is_alive(name: str, process: int) -> bool:
    with _live_guard:
        if name in _live_temporaries:
            return True
    # In a container, a dead writer often had the process number of this process.
    # On Windows, signal 0 is not a harmless check but Ctrl-C.
    if process == os.getpid() or os.name == "nt":
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def remove_tree(path: Path) -> None:
    """Remove a file or a directory without following links. What cannot be removed stays for the next attempt."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)


def discard(path: Path) -> None:
    """Rename a file or a directory, then remove it, so that nothing half-deleted keeps a valid name."""
    trash = temporary_sibling(path, "trash")
    try:
        os.rename(path, trash)
        crash_point("trashed")
        remove_tree(trash)
    finally:
        release_temporary(trash)


def file_record(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a regular file. Links, pipes, missing and unreadable files are errors."""
    size = regular_file_size(path)
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from None
    return {"size": size, "sha256": digest.hexdigest()}


def regular_file_size(path: Path) -> int:
    """Size of a regular file in bytes. Links, pipes and missing files are errors."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing{USE_ANOTHER}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise CheckpointError(f"{path}: refused, it is {kind}")
    return status.st_size


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """The error about a file that permissions or a failing disk keep from being read."""
    return CheckpointError(f"{path}: cannot be read ({one_line(error.strerror or error)})")


def check_file(path: Path, size: int, sha256: str | None) -> None:
    """Raise an error unless this is a regular file of this size and, if given, with this SHA-256."""
    actual = regular_file_size(path)
    if actual != size:
        raise CheckpointError(f"{path}: damaged, has {actual} bytes instead of {size}{USE_ANOTHER}")
    if sha256 is not None and file_record(path)["sha256"] != sha256:
        raise CheckpointError(f"{path}: damaged, its SHA-256 does not match the manifest{USE_ANOTHER}")


def encode_json(value: Any, path: Path, indent: int | None = None) -> bytes:
    """Strict JSON within the limits of `read_json`; errors name `path`."""
    content = json.dumps(value, allow_nan=False, indent=indent).encode("ascii")
    _check_json_size(path, content)
    return content


def _check_json_size(path: Path, content: bytes) -> None:
    if len(content) > MAX_JSON_BYTES:
        raise CheckpointError(
            f"{path}: {len(content)} bytes of JSON exceed the limit of {MAX_JSON_BYTES}; store arrays instead of lists"
        )
    values = sum(content.count(sign) for sign in b",[{")
    if values > MAX_JSON_VALUES:
        raise CheckpointError(
            f"{path}: {values} values in JSON exceed the limit of {MAX_JSON_VALUES}; store arrays instead of lists"
        )


def read_json(path: Path) -> Any:
    """Read strict JSON of limited size and depth."""
    size = regular_file_size(path)
    if size > MAX_JSON_BYTES:
        raise CheckpointError(f"{path}: refused, {size} bytes of JSON exceed the limit of {MAX_JSON_BYTES}")
    try:
        content = path.read_bytes()
        _check_json_size(path, content)
        value = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise CheckpointError(f"{path}: refused, JSON nested deeper than {MAX_JSON_DEPTH} levels") from None
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({one_line(error)})") from None
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return value
    raise CheckpointError(f"{path}: refused, JSON nested deeper than {MAX_JSON_DEPTH} levels")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
