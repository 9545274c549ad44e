"""Convert nested states to JSON and arrays, and back, exactly.

A state consists of dicts with string keys, lists, tuples, strings, numbers, booleans, None, numpy scalars and
arrays, and torch tensors. Every value is restored bit for bit with its type. Exceptions: a tuple becomes a list, a
dict subclass becomes a dict, and a tensor is detached and on the CPU.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

MAX_DEPTH = 90  # below the limit for reading JSON, so that every saved state can be loaded
ARRAY_DTYPES = frozenset(
    ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
    + ("float16", "float32", "float64")
)


def flatten_state(state: Any) -> tuple[Any, dict[str, np.ndarray | torch.Tensor]]:
    """Split a state into strict JSON and arrays; in the JSON an array is {"$tensor": "a/b/c", "$kind": ...}."""
    tensors: dict[str, np.ndarray | torch.Tensor] = {}
    return _flatten(state, (), tensors), tensors


def unflatten_state(tree: Any, tensors: Mapping[str, Any]) -> Any:
    """The inverse of `flatten_state`; `tensors` may be numpy arrays from a file."""
    if isinstance(tree, list):
        return [unflatten_state(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if not any(key.startswith("$") for key in tree):
        return {key: unflatten_state(item, tensors) for key, item in tree.items()}
    if set(tree) == {"$tensor", "$kind"}:
        return _restore_array(tensors[tree["$tensor"]], tree["$kind"])
    if len(tree) == 1:
        ((tag, value),) = tree.items()
        if tag == "$float" and value in ("inf", "-inf", "nan"):
            return float(value)
        if tag == "$int":
            return int(value, 16)
        if tag == "$scalar" and value[0] in ARRAY_DTYPES:
            return _restore_scalar(np.dtype(value[0]), unflatten_state(value[1], tensors))
    raise ValueError(f"unknown marker {sorted(tree)} in a state")


def _restore_scalar(dtype: np.dtype[Any], number: Any) -> Any:
    """NumPy 2 refuses an integer that its type cannot hold; NumPy 1 would wrap it around."""
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise OverflowError(f"{number} is not a number of type {dtype}")
    return dtype.type(number)


def to_numpy(value: np.ndarray | torch.Tensor) -> np.ndarray:
    """The numpy array to store for an array or tensor of `flatten_state`."""
    if isinstance(value, np.ndarray):
        return value
    if str(value.dtype) == "torch.bfloat16":  # numpy has no such type; the bits are stored as uint16
        import torch

        value = value.contiguous().view(torch.int16)
        return value.numpy().view(np.uint16)
    return value.numpy()


def state_hash(state: Any) -> str:
    """SHA-256 of the values of a state.

    The hash depends on the dtype, shape and every bit of an array. It ignores the order of keys and the differences
    between tuple and list, torch and numpy, and numpy scalar and Python number.
    """
    digest = hashlib.sha256()
    _hash_into(state, (), digest.update)
    return digest.hexdigest()


def _flatten(value: Any, path: tuple[str, ...], tensors: dict[str, Any]) -> Any:
    if len(path) > MAX_DEPTH:
        raise TypeError(f"state{_where(path[:5])}...: nested deeper than {MAX_DEPTH} levels, or contains a cycle")
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        # Other JSON readers lose digits of integers beyond 64 bits, which random generators have.
        return value if -(2**63) <= value < 2**64 else {"$int": hex(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, np.generic):
        _check_dtype(value.dtype, path)
        return {"$scalar": [value.dtype.name, _flatten(value.item(), path, tensors)]}
    if isinstance(value, np.ndarray):
        _check_dtype(value.dtype, path)
        return _store_array(value, "numpy", path, tensors)
    if _is_torch(value):
        return _store_tensor(value, path, tensors)
    if isinstance(value, Mapping):
        return {key: _flatten(item, (*path, key), tensors) for key, item in _items(value, path)}
    if isinstance(value, (list, tuple)):
        return [_flatten(item, (*path, str(index)), tensors) for index, item in enumerate(value)]
    raise TypeError(f"state{_where(path)}: cannot store a {type(value).__name__}")


def _items(value: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if type(key) is not str:
            raise TypeError(f"state{_where(path)}: the key {key!r} is not a string")
        if key.startswith("$"):
            raise TypeError(f"state{_where(path)}: the key {key!r} starts with '$', which is reserved")
        yield key, item


def _store_array(value: Any, kind: str, path: tuple[str, ...], tensors: dict[str, Any]) -> dict[str, str]:
    # Escape as in a JSON pointer, so that {"a/b": ...} and {"a": {"b": ...}} get different names.
    name = "/".join(part.replace("~", "~0").replace("/", "~1") for part in path) or "$state"
    if name == "__metadata__":
        raise TypeError("state['__metadata__']: the file format reserves this name")
    tensors[name] = value
    return {"$tensor": name, "$kind": kind}


def _store_tensor(value: torch.Tensor, path: tuple[str, ...], tensors: dict[str, Any]) -> dict[str, str]:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in ARRAY_DTYPES | {"bfloat16"} or value.is_sparse or value.is_quantized:
        raise TypeError(f"state{_where(path)}: cannot store a tensor of {value.dtype}, {value.layout}")
    kind = "torch.bfloat16" if dtype == "bfloat16" else "torch"
    return _store_array(value.detach().cpu().resolve_neg(), kind, path, tensors)


def _restore_array(array: Any, kind: str) -> Any:
    if kind == "numpy":
        return array
    if kind not in ("torch", "torch.bfloat16"):
        raise ValueError(f"unknown kind of array {kind!r} in a state")
    if _is_torch(array):
        return array
    import torch

    if kind == "torch.bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _hash_into(value: Any, path: tuple[str, ...], update: Callable[[bytes], None]) -> None:
    if isinstance(value, Mapping):
        items = sorted(_items(value, path))
        update(b"{%d:" % len(items))
        for key, item in items:
            _hash_into(key, path, update)
            _hash_into(item, (*path, key), update)
    elif isinstance(value, (list, tuple)):
        update(b"[%d:" % len(value))
        for index, item in enumerate(value):
            _hash_into(item, (*path, str(index)), update)
    elif isinstance(value, np.ndarray) or _is_torch(value):
        leaf: dict[str, Any] = {}
        mark = _flatten(value, path, leaf)
        array = np.asarray(to_numpy(leaf[mark["$tensor"]]), order="C")
        dtype = "bfloat16" if mark["$kind"] == "torch.bfloat16" else array.dtype.name
        update(f"<{dtype}{array.shape}:".encode())
        update(array.tobytes())
    else:
        plain = value.item() if isinstance(value, np.generic) else value
        text = _flatten(plain, path, {})
        encoded = f"{type(plain).__name__}:{text!r}".encode("utf-8", "surrogatepass")
        update(b"%d:" % len(encoded) + encoded)


def _check_dtype(dtype: np.dtype, path: tuple[str, ...]) -> None:
    if dtype.name not in ARRAY_DTYPES or not dtype.isnative:
        raise TypeError(f"state{_where(path)}: cannot store numpy data of type {dtype.str}")


def _is_torch(value: Any) -> bool:
    # Importing torch takes seconds. If nothing has imported it, the value cannot be a tensor.
    torch_module = sys.modules.get("torch")
    return torch_module is not None and isinstance(value, torch_module.Tensor)


def _where(path: tuple[str, ...]) -> str:
    return "".join(f"[{part!r}]" for part in path)
