"""One checkpoint: a directory of JSON and safetensors files, complete or absent, and verified before use."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from rl_training._version import __version__
from rl_training.errors import CheckpointError
from rl_training.storage.durable_files import (
    USE_ANOTHER,
    check_file,
    crash_point,
    encode_json,
    file_record,
    free_name,
    leftovers,
    make_directory,
    read_json,
    release_temporary,
    remove_leftovers,
    remove_tree,
    sync_directory,
    temporary_sibling,
    write_synced,
)
from rl_training.storage.fingerprint import fingerprint
from rl_training.storage.real_files import DIRECTORY_MODE, exchange
from rl_training.storage.replay_segments import SegmentRef, segment_path
from rl_training.storage.state_tree import flatten_state, to_numpy, unflatten_state
from rl_training.storage.tensor_files import SUFFIX, read_arrays, read_header, write_arrays
from rl_training.text import one_line

SCHEMA = 1
FORMAT = "rl_training checkpoint"
MANIFEST = "manifest.json"
FILES = ("config.json", "state.json", "tensors.safetensors")
Kind = Literal["resume", "agent"]
SegmentCheck = Literal["hash", "size", "skip"]

# A forged file within the limits of `read_json` could still keep a reader busy for minutes.
MAX_CONFIG_VALUES = 10_000
MAX_FINGERPRINT_ENTRIES = 100
MAX_SEGMENTS = 100_000
MAX_PROBLEMS = 20
LONGEST_FIELD = 200
LARGEST_COUNT = 2**63 - 1

_FIELD_TYPES: dict[str, type] = {
    "library_version": str,
    "kind": str,
    "algorithm": str,
    "env_steps": int,
    "number": int,
    "exact": bool,
    "created": str,
    "files": dict,
    "fingerprint": dict,
    "segments": list,
}


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint, cheap to read."""

    schema: int
    library_version: str
    kind: Kind
    algorithm: str
    env_steps: int
    number: int
    exact: bool
    created: str
    files: dict[str, dict[str, Any]]
    fingerprint: dict[str, Any]
    segments: list[SegmentRef]


@dataclass(frozen=True)
class Checkpoint(Manifest):
    """A loaded checkpoint: its manifest with its content. `skipped` says why newer checkpoints were passed over."""

    path: Path
    config: dict[str, Any]
    state: dict[str, Any]
    skipped: list[str] = field(default_factory=list)


def save_checkpoint(
    directory: str | Path,
    *,
    algorithm: str,
    config: dict[str, Any],
    state: dict[str, Any],
    env_steps: int,
    number: int,
    kind: Kind = "resume",
    exact: bool = True,
    segments: Sequence[SegmentRef] = (),
    replace: bool = False,
) -> Path:
    """Write a checkpoint durably and return its path. A failed write leaves nothing behind.

    A name that is taken gets the suffix `-1`, `-2`, ... With `replace`, a checkpoint of that name is replaced
    instead. A directory that does not verify as a checkpoint, or contains anything else, is never replaced.
    """
    directory = Path(directory) if Path(directory).name else Path(directory).absolute()  # `.` has no name
    if not directory.name or "\0" in str(directory):
        raise CheckpointError(f"{one_line(directory)}: a checkpoint cannot have this name; choose another one")
    if replace:
        _check_replaceable(directory, kind)
    if _count_values(config) > MAX_CONFIG_VALUES:
        raise CheckpointError(f"{directory}: a config of more than {MAX_CONFIG_VALUES} values cannot be saved")
    tree, tensors = flatten_state(state)
    temporary = temporary_sibling(directory)
    try:
        make_directory(directory.parent)
        if replace:
            _restore_replaced(directory)
        remove_leftovers(directory.parent, directory.name, prefixes=("step-", "best-"))
        os.mkdir(temporary, DIRECTORY_MODE)
        crash_point("temporary-created")
        write_synced(temporary / FILES[0], encode_json(config, directory / FILES[0], indent=2))
        crash_point("config-written")
        write_synced(temporary / FILES[1], encode_json(tree, directory / FILES[1]))
        crash_point("state-written")
        write_arrays(temporary / FILES[2], {name: to_numpy(value) for name, value in tensors.items()})
        crash_point("tensors-written")
        manifest = {
            "format": FORMAT,
            "schema": SCHEMA,
            "library_version": __version__,
            "kind": kind,
            "algorithm": algorithm,
            "env_steps": int(env_steps),
            "number": int(number),
            "exact": bool(exact),
            "created": datetime.now(timezone.utc).isoformat(),
            "files": {name: file_record(temporary / name) for name in FILES},
            "fingerprint": fingerprint(),
            "segments": [segment.to_json() for segment in segments],
        }
        manifest["checksum"] = _manifest_checksum(manifest)
        write_synced(temporary / MANIFEST, encode_json(manifest, directory / MANIFEST, indent=2))
        crash_point("manifest-written")
        sync_directory(temporary)
        crash_point("directory-synced")
        final = _replace(temporary, directory, kind) if replace else _move_to_free_name(temporary, directory)
        crash_point("renamed")
        sync_directory(directory.parent)
        crash_point("parent-synced")
    except BaseException as error:
        remove_tree(temporary)
        if isinstance(error, OSError):
            raise CheckpointError(
                f"{directory}: cannot write the checkpoint ({one_line(error.strerror or error)}); "
                "free some space or choose another output_dir"
            ) from None
        raise
    finally:
        release_temporary(temporary)
    return final


def _move_to_free_name(temporary: Path, directory: Path) -> Path:
    # Renaming onto an empty directory succeeds on POSIX, so the name must be free beforehand.
    final = free_name(directory, first=1)
    os.rename(temporary, final)
    return final


def _replace(temporary: Path, directory: Path, kind: Kind) -> Path:
    """Give the new checkpoint the name of the old one; a kill at any moment leaves one of them under that name."""
    _check_replaceable(directory, kind)  # again: writing the new one took a while
    if not os.path.lexists(directory):
        os.rename(temporary, directory)
        return directory
    trash = temporary_sibling(directory, "trash")
    try:
        if exchange(temporary, directory):
            crash_point("old-moved")
            os.rename(temporary, trash)
        else:
            os.rename(directory, trash)
            crash_point("old-moved")
            try:
                os.rename(temporary, directory)
            except OSError:
                os.rename(trash, directory)
                raise
        # The new name must be on the disk before the old content is removed.
        sync_directory(directory.parent)
        if foreign_files(trash):  # put there since the check above
            os.rename(trash, free_name(directory.with_name(f"{directory.name}-replaced")))
        else:
            remove_tree(trash)
    finally:
        release_temporary(trash)
    return directory


def _restore_replaced(directory: Path) -> None:
    """Undo a replacement that was killed between two renames, where names cannot be swapped in one step."""
    if os.path.lexists(directory):
        return
    for moved in leftovers(directory.parent, directory.name, purposes=("trash",)):
        if not verify_checkpoint(moved, segments="skip"):
            os.rename(moved, directory)
            return


def _check_replaceable(directory: Path, kind: Kind) -> None:
    """CheckpointError unless the name is free, or has an empty directory, or a valid checkpoint and nothing else."""
    if not os.path.lexists(directory):
        return
    if directory.is_symlink():
        raise CheckpointError(f"{directory}: is a symbolic link, which is not replaced; name its target instead")
    if os.path.isdir(directory) and os.access(directory, os.R_OK | os.X_OK) and not os.listdir(directory):
        return
    if verify_checkpoint(directory, segments="skip"):
        raise CheckpointError(
            f"{directory}: exists and is not an rl_training checkpoint that verifies; remove it or choose another name"
        )
    foreign = foreign_files(directory)
    if foreign:
        raise CheckpointError(
            f"{directory}: also contains {one_line(foreign[0])}, which is not part of the checkpoint; "
            "move it away or choose another name"
        )
    if read_manifest(directory).kind != kind:
        raise CheckpointError(f"{directory}: is the checkpoint of a run and can be resumed; choose another name")


def foreign_files(directory: Path) -> list[str]:
    """The names in the directory of a checkpoint that the library did not write."""
    return sorted(set(os.listdir(directory)) - {MANIFEST, *FILES})


def _manifest_checksum(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def read_manifest(directory: str | Path) -> Manifest:
    """Read and check the manifest without verifying the other files."""
    directory = Path(directory)
    path = directory / MANIFEST
    if not os.path.exists(directory):
        raise CheckpointError(f"{directory}: no such checkpoint")
    if not os.path.isdir(directory) or not os.path.lexists(path):
        reason = f"it has no {MANIFEST}" if os.path.isdir(directory) else "it is a file, not a directory"
        raise CheckpointError(f"{directory}: not an rl_training checkpoint ({reason})")
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT or type(data.get("schema")) is not int:
        raise CheckpointError(f"{path}: not the manifest of an rl_training checkpoint")
    if data["schema"] > SCHEMA:
        raise CheckpointError(
            f"{path}: written by a newer rl_training ({one_line(data.get('library_version'))}) with schema "
            f"{data['schema']}, but this version reads schemas up to {SCHEMA}; upgrade rl_training"
        )
    if data["schema"] < 1 or data.get("checksum") != _manifest_checksum(data):
        raise CheckpointError(f"{path}: damaged, its checksum does not match{USE_ANOTHER}")
    try:
        return _parse_manifest(data)
    except ValueError as error:
        raise CheckpointError(f"{path}: refused, {one_line(error)}") from None


def _parse_manifest(data: dict[str, Any]) -> Manifest:
    for name, kind in _FIELD_TYPES.items():
        if type(data.get(name)) is not kind:
            raise ValueError(f"the field {name!r} is missing or is not of type {kind.__name__}")
        if kind is str and len(data[name]) > LONGEST_FIELD:
            raise ValueError(f"the field {name!r} has {len(data[name])} characters, the limit is {LONGEST_FIELD}")
        if kind is int and not 0 <= data[name] <= LARGEST_COUNT:
            raise ValueError(f"the field {name!r} is out of range")
    if data["kind"] not in ("resume", "agent"):
        raise ValueError(f"the kind {data['kind']!r} is unknown")
    _check_fingerprint(data["fingerprint"])
    unexpected = sorted(set(data["files"]) ^ set(FILES))
    if unexpected:
        raise ValueError(f"expected the files {', '.join(FILES)}; {unexpected[0]!r} is missing or unexpected")
    for name, record in data["files"].items():
        if not isinstance(record, dict) or type(record.get("size")) is not int:
            raise ValueError(f"the entry of {name} has no size")
        if not re.fullmatch("[0-9a-f]{64}", str(record.get("sha256"))):
            raise ValueError(f"the entry of {name} has no SHA-256")
    fields = {name: data[name] for name in _FIELD_TYPES}
    if len(data["segments"]) > MAX_SEGMENTS:
        raise ValueError(f"{len(data['segments'])} replay segments exceed the limit of {MAX_SEGMENTS}")
    fields["segments"] = [SegmentRef.from_json(record) for record in data["segments"]]
    if len({segment.name for segment in fields["segments"]}) != len(fields["segments"]):
        raise ValueError("a replay segment is listed twice")  # each of them would be hashed
    return Manifest(schema=data["schema"], **fields)


def _check_fingerprint(entries: dict[str, Any]) -> None:
    if len(entries) > MAX_FINGERPRINT_ENTRIES:
        raise ValueError(f"a fingerprint of {len(entries)} entries exceeds the limit of {MAX_FINGERPRINT_ENTRIES}")
    for name, value in entries.items():
        plain = value is None or type(value) is str or (type(value) is int and abs(value) <= LARGEST_COUNT)
        if not plain or len(name) > LONGEST_FIELD or (isinstance(value, str) and len(value) > LONGEST_FIELD):
            raise ValueError(f"the fingerprint entry {one_line(name, 60)!r} is not a short text or a number")


def _count_values(tree: Any) -> int:
    """The number of values in a JSON tree, containers included."""
    count, level = 0, [tree]
    while level:
        count += len(level)
        containers = (
            item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)
        )
        level = [child for container in containers for child in container]
    return count


def load_checkpoint(directory: str | Path) -> Checkpoint:
    """Verify and load the files of a checkpoint. `read_segment` verifies and loads replay data."""
    directory = Path(directory)
    manifest = read_manifest(directory)
    for name, record in manifest.files.items():
        check_file(directory / name, record["size"], record["sha256"])
    config, tree = (read_json(directory / name) for name in FILES[:2])
    if _count_values(config) > MAX_CONFIG_VALUES:
        raise CheckpointError(f"{directory / FILES[0]}: refused, more than {MAX_CONFIG_VALUES} values")
    tensors = read_arrays(directory / FILES[2])
    try:
        state = unflatten_state(tree, tensors)
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{directory / FILES[1]}: not a stored state ({one_line(error)})") from None
    if not isinstance(config, dict) or not isinstance(state, dict):
        raise CheckpointError(f"{directory}: config and state must be JSON objects{USE_ANOTHER}")
    return Checkpoint(**vars(manifest), path=directory, config=config, state=state)


def replay_directory(checkpoint: Path) -> Path:
    """The directory of a checkpoint's replay segments, next to the run's `checkpoints`."""
    return checkpoint.absolute().parent.parent / "replay"


def verify_checkpoint(directory: str | Path, *, segments: SegmentCheck = "hash") -> list[str]:
    """The problems of a checkpoint (the first 20), one line each; empty if it is valid."""
    directory = Path(directory)
    try:
        manifest = read_manifest(directory)
    except CheckpointError as error:
        return [str(error)]
    problems: list[str] = []
    checks = [(directory / name, record["size"], record["sha256"]) for name, record in manifest.files.items()]
    if segments != "skip":
        folder = replay_directory(directory)
        for ref in manifest.segments:
            checks.append((segment_path(folder, ref), ref.size, ref.sha256 if segments == "hash" else None))
    for path, size, sha256 in checks:
        try:
            check_file(path, size, sha256)
            if sha256 is not None and path.suffix == SUFFIX:
                read_header(path)  # hashes that match prove only that the author of the files made them
        except CheckpointError as error:
            problems.append(str(error))
            if len(problems) == MAX_PROBLEMS:
                break
    return problems
