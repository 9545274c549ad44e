"""Replay data in immutable files. Each transition is written once; checkpoints refer to the files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import CheckpointError
from rl_training.storage.durable_files import (
    check_file,
    crash_point,
    file_record,
    free_name,
    make_directory,
    release_temporary,
    remove_leftovers,
    sync_directory,
    temporary_sibling,
)
from rl_training.storage.state_tree import ARRAY_DTYPES
from rl_training.storage.tensor_files import SUFFIX, read_arrays, write_arrays
from rl_training.text import one_line

SEGMENT_NAME = re.compile(r"segment-\d{12,20}-\d{12,20}(-\d{1,6})?\.safetensors")


@dataclass(frozen=True)
class SegmentRef:
    """Transitions `start` to `stop` (exclusive, counted from the start of the run) in the file `name`."""

    name: str
    start: int
    stop: int
    size: int
    sha256: str
    shard: int = 0  # of a replay that has one buffer per actor

    def to_json(self) -> dict[str, Any]:
        """The manifest entry; a replay of one buffer has no shards to tell apart."""
        record = asdict(self)
        return record if self.shard else {name: value for name, value in record.items() if name != "shard"}

    @classmethod
    def from_json(cls, record: Any) -> SegmentRef:
        """Build a reference from a manifest entry; a malformed entry is a ValueError."""
        kinds = {"name": str, "start": int, "stop": int, "size": int, "sha256": str, "shard": int}
        found = {"shard": 0} | record if isinstance(record, dict) else {}
        if {key: type(value) for key, value in found.items()} != kinds:
            raise ValueError("a replay segment entry is malformed")
        if not SEGMENT_NAME.fullmatch(record["name"]):
            raise ValueError(f"the replay segment name {one_line(record['name'])!r} is not valid")
        if not all(0 <= found[key] < 2**63 for key in ("start", "stop", "size", "shard")):
            raise ValueError(f"the replay segment {record['name']} has an impossible range or size")
        return cls(**record)


def write_segment(
    directory: str | Path, start: int, stop: int, arrays: Mapping[str, np.ndarray], shard: int = 0
) -> SegmentRef:
    """Write transitions `start` to `stop` of a shard to a new file. The file is durable when this returns."""
    directory = Path(directory)
    if not 0 <= start < stop:
        raise ValueError(f"a segment needs 0 <= start < stop, got {start} and {stop}")
    for name, array in arrays.items():
        if array.dtype.name not in ARRAY_DTYPES:
            raise TypeError(f"segment array {name!r}: cannot store {array.dtype}")
    temporary = temporary_sibling(directory / "segment")
    try:
        make_directory(directory)
        remove_leftovers(directory, "segment")
        write_arrays(temporary, arrays)
        record = file_record(temporary)
        crash_point("segment-written")
        # A run that is killed between a segment and its checkpoint writes the same interval again; so does each shard.
        final = free_name(directory / f"segment-{start:012d}-{stop:012d}", suffix=SUFFIX, first=1)
        os.rename(temporary, final)
        crash_point("segment-renamed")
        sync_directory(directory)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CheckpointError(
                f"{directory}: cannot write a replay segment ({one_line(error.strerror or error)}); free some space"
            ) from None
        raise
    finally:
        release_temporary(temporary)
    return SegmentRef(name=final.name, start=start, stop=stop, shard=shard, **record)


def read_segment(directory: str | Path, ref: SegmentRef) -> dict[str, np.ndarray]:
    """Check the size and hash of a segment, then load its arrays."""
    path = segment_path(Path(directory), ref)
    check_file(path, ref.size, ref.sha256)
    return read_arrays(path)


def segment_path(directory: Path, ref: SegmentRef) -> Path:
    """The file of a segment; a name that is not a segment's could lead out of `directory` and is refused."""
    if not SEGMENT_NAME.fullmatch(ref.name):
        raise CheckpointError(f"{directory}: the replay segment name {one_line(ref.name)!r} is not valid")
    return directory / ref.name


def remove_unused_segments(directory: Path, used: Iterable[SegmentRef]) -> None:
    """Remove the segment files to which no reference points."""
    if not directory.is_dir():
        return
    names = {ref.name for ref in used}
    for path in list(directory.iterdir()):
        if SEGMENT_NAME.fullmatch(path.name) and path.name not in names:
            path.unlink(missing_ok=True)
    remove_leftovers(directory, "segment")
