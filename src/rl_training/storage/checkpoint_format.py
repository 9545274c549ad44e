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
from rl_training.storage.replay_segments import SegmentRef, segment_path
from rl_training.storage.state_tree import flatten_state, to_numpy, unflatten_state
from rl_training.storage.tensor_files import read_arrays, write_arrays
from rl_training.text import one_line

SCHEMA = 1
FORMAT = "rl_training checkpoint"
MANIFEST = "manifest.json"
FILES = ("config.json", "state.json", "tensors.safetensors")
Kind = Literal["resume", "agent"]
SegmentCheck = Literal["hash", "size", "skip"]

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
    instead; anything that is not a checkpoint is never replaced.
    """
    directory = Path(directory)
    if replace:
        _check_replaceable(directory)
    tree, tensors = flatten_state(state)
    temporary = temporary_sibling(directory)
    try:
        make_directory(directory.parent)
        remove_leftovers(directory.parent, ("step-", "best-", directory.name))
        os.mkdir(temporary, 0o755)
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
        final = _move_into_place(temporary, directory, replace)
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


def _move_into_place(temporary: Path, directory: Path, replace: bool) -> Path:
    if replace and os.path.lexists(directory):
        trash = temporary_sibling(directory, "trash")
        try:
            os.rename(directory, trash)
            crash_point("old-moved")
            try:
                os.rename(temporary, directory)
            except OSError:
                os.rename(trash, directory)
                raise
            # The new name must be on the disk before the old content is removed.
            sync_directory(directory.parent)
            remove_tree(trash)
        finally:
            release_temporary(trash)
        return directory
    # Renaming onto an empty directory succeeds on POSIX, so the name must be free beforehand.
    final = free_name(directory, first=1)
    os.rename(temporary, final)
    return final


def _check_replaceable(directory: Path) -> None:
    if not os.path.lexists(directory) or (directory / MANIFEST).is_file():
        return
    if directory.is_dir() and not directory.is_symlink() and not any(directory.iterdir()):
        return
    raise CheckpointError(f"{directory}: exists and is not an rl_training checkpoint; choose another name")


def _manifest_checksum(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def read_manifest(directory: str | Path) -> Manifest:
    """Read and check the manifest without verifying the other files."""
    directory = Path(directory)
    path = directory / MANIFEST
    if not directory.exists():
        raise CheckpointError(f"{directory}: no such checkpoint")
    if not directory.is_dir() or not os.path.lexists(path):
        reason = f"it has no {MANIFEST}" if directory.is_dir() else "it is a file, not a directory"
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
    if data["kind"] not in ("resume", "agent"):
        raise ValueError(f"the kind {data['kind']!r} is unknown")
    unexpected = sorted(set(data["files"]) ^ set(FILES))
    if unexpected:
        raise ValueError(f"expected the files {', '.join(FILES)}; {unexpected[0]!r} is missing or unexpected")
    for name, record in data["files"].items():
        if not isinstance(record, dict) or type(record.get("size")) is not int:
            raise ValueError(f"the entry of {name} has no size")
        if not re.fullmatch("[0-9a-f]{64}", str(record.get("sha256"))):
            raise ValueError(f"the entry of {name} has no SHA-256")
    fields = {name: data[name] for name in _FIELD_TYPES}
    fields["segments"] = [SegmentRef.from_json(record) for record in data["segments"]]
    return Manifest(schema=data["schema"], **fields)


def load_checkpoint(directory: str | Path) -> Checkpoint:
    """Verify and load the files of a checkpoint. `read_segment` verifies and loads replay data."""
    directory = Path(directory)
    manifest = read_manifest(directory)
    for name, record in manifest.files.items():
        check_file(directory / name, record["size"], record["sha256"])
    config, tree = (read_json(directory / name) for name in FILES[:2])
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
    """All problems of a checkpoint, one line each; empty if it is valid."""
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
        except CheckpointError as error:
            problems.append(str(error))
    return problems
