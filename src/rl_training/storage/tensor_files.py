"""Arrays in safetensors files: synced writes without a copy, reads with limits. Never pickle."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from rl_training.errors import CheckpointError
from rl_training.storage.durable_files import regular_file_size
from rl_training.text import one_line

MAX_HEADER_BYTES = 8 * 2**20
MAX_TENSORS = 20_000

_DTYPE_NAMES = {
    "bool": "BOOL",
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
}


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
        end = position + array.nbytes
        header[name] = {
            "dtype": _DTYPE_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path}: {len(dense)} tensors need a header of {len(text)} bytes, the limit is {MAX_HEADER_BYTES}"
        )
    with open(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in dense.values():
            if array.size:
                file.write(array.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())


def check_header(path: Path, size: int) -> None:
    """Refuse a header that is longer than the file or than the limit."""
    with open(path, "rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if size < 8 or header > size - 8:
        raise CheckpointError(f"{path}: not a safetensors file")
    if header > MAX_HEADER_BYTES:
        raise CheckpointError(f"{path}: refused, a header of {header} bytes exceeds the limit of {MAX_HEADER_BYTES}")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file into writable arrays."""
    check_header(path, regular_file_size(path))
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
            if len(names) > MAX_TENSORS:
                raise CheckpointError(f"{path}: refused, {len(names)} tensors exceed the limit of {MAX_TENSORS}")
            return {name: _writable(file.get_tensor(name)) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({one_line(error)})") from None


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable and array.flags.owndata else array.copy()
