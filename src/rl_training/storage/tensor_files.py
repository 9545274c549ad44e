"""Arrays in safetensors files: synced writes without a copy, reads with limits. Never pickle."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from rl_training.errors import CheckpointError
from rl_training.storage.durable_files import regular_file_size, unreadable
from rl_training.storage.real_files import open_own_file
from rl_training.text import one_line

SUFFIX = ".safetensors"
MAX_HEADER_BYTES = 2**20
MAX_TENSORS = 4_000
MAX_DIMENSIONS = 32
LONGEST_NAME = 500

_DTYPE_NAMES = {
    "bool": "BOOL",
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
}


_DTYPES = {stored: np.dtype(name) for name, stored in _DTYPE_NAMES.items()}


class ArrayInfo(NamedTuple):
    """What the header of a file says about one array."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a new safetensors file. The file is durable when this returns; disk errors are OSErrors.

    The safetensors library would leave its temporary file behind after a kill, and it hides the error number. The
    format is eight bytes with the length of a JSON header, the header, and the bytes of all arrays.
    """
    if sys.byteorder != "little":  # pragma: no cover
        raise CheckpointError(f"{path}: safetensors files are little-endian, but this machine is big-endian")
    # Larger items first, so that every array starts at a multiple of its item size. The reader uses the same order.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    # np.ascontiguousarray would turn a 0-d array into a 1-d array.
    dense = {name: np.asarray(arrays[name], order="C") for name in names}
    header, position = {}, 0
    for name, array in dense.items():
        if array.dtype.name not in _DTYPE_NAMES:
            raise TypeError(f"array {name!r}: cannot store {array.dtype}")
        if len(name) > LONGEST_NAME or array.ndim > MAX_DIMENSIONS:
            raise TypeError(f"array {name[:50]!r}...: the name or the shape is too long to store")
        end = position + array.nbytes
        header[name] = {
            "dtype": _DTYPE_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES or len(dense) > MAX_TENSORS:
        raise CheckpointError(
            f"{path}: {len(dense)} tensors need a header of {len(text)} bytes, but the limits are {MAX_TENSORS} "
            f"tensors and {MAX_HEADER_BYTES} bytes; store fewer and larger arrays"
        )
    with open_own_file(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in dense.values():
            if array.size:
                file.write(array.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())


def read_header(path: Path) -> dict[str, ArrayInfo]:
    """The arrays of a safetensors file, from its header alone: names, types and shapes that agree with the file."""
    size = regular_file_size(path)
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise CheckpointError(f"{path}: not a safetensors file")
            if length > MAX_HEADER_BYTES:
                raise CheckpointError(
                    f"{path}: refused, a header of {length} bytes exceeds the limit of {MAX_HEADER_BYTES}"
                )
            content = file.read(length)
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return _parse_header(json.loads(content.decode("utf-8")), size - 8 - length)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({one_line(error)})") from None


def _parse_header(header: Any, body_size: int) -> dict[str, ArrayInfo]:
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise ValueError(f"refused, {len(header)} tensors exceed the limit of {MAX_TENSORS}")
    arrays, ranges = {}, []
    for name, entry in header.items():
        shown = one_line(name, 60)
        if len(name) > LONGEST_NAME:
            raise ValueError(f"the name {shown!r} has {len(name)} characters, the limit is {LONGEST_NAME}")
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"the entry of {shown!r} is malformed")
        dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if dtype is None:
            raise ValueError(f"{shown!r} has the unsupported type {one_line(entry['dtype'], 60)!r}")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not _are_sizes(shape, MAX_DIMENSIONS) or not _are_sizes(offsets, 2) or len(offsets) != 2:
            raise ValueError(f"{shown!r} has an impossible shape or place")
        if math.prod(shape) * dtype.itemsize != offsets[1] - offsets[0]:
            raise ValueError(f"the shape of {shown!r} does not fit its {offsets[1] - offsets[0]} bytes")
        arrays[name] = ArrayInfo(dtype.name, tuple(shape), offsets[1] - offsets[0])
        ranges.append((offsets[0], offsets[1]))
    position = 0
    for begin, end in sorted(ranges):  # overlapping arrays could ask for many times the size of the file
        if begin != position:
            raise ValueError("its arrays overlap or leave gaps")
        position = end
    if position != body_size:
        raise ValueError(f"its arrays have {position} bytes, but the file has {body_size}")
    return arrays


def _are_sizes(values: Any, most: int) -> bool:
    return isinstance(values, list) and len(values) <= most and all(type(n) is int and 0 <= n < 2**62 for n in values)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file into writable arrays."""
    arrays = read_header(path)
    try:
        with safe_open(path, framework="np") as file:
            if set(file.keys()) != arrays.keys():
                raise CheckpointError(f"{path}: not a readable safetensors file (its header is ambiguous)")
            return {name: _writable(file.get_tensor(name)) for name in arrays}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({one_line(error)})") from None


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable and array.flags.owndata else array.copy()
