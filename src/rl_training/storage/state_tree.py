"""Nested state <-> JSON and arrays, exactly.

A state is made of dicts with string keys, lists, tuples, strings, numbers, booleans, None, numpy scalars
and arrays, and torch tensors. Everything comes back bit for bit and of the same type, except that a tuple
comes back as a list, a dict subclass as a dict, and a tensor detached and on the CPU.
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

MAX_DEPTH = 90  # below the limit for reading JSON: what can be saved can be loaded
ARRAY_DTYPES = frozenset(
    ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
    + ("float16", "float32", "float64")
)


def flatten_state(state: Any) -> tuple[Any, dict[str, np.ndarray | torch.Tensor]]:
    """Split a state into strict JSON and its arrays; an array leaf becomes {"$tensor": "a/b/c"}."""
    tensors: dict[str, np.ndarray | torch.Tensor] = {}
    return _flatten(state, (), tensors), tensors


def unflatten_state(tree: Any, tensors: Mapping[str, Any]) -> Any:
    """Inverse of `flatten_state`; the tensors may be numpy arrays, as read from a file."""
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
            return np.dtype(value[0]).type(unflatten_state(value[1], tensors))
    raise ValueError(f"unknown mark {sorted(tree)} in a state")


def to_numpy(value: np.ndarray | torch.Tensor) -> np.ndarray:
    """The array that is stored for a leaf of `flatten_state`."""
    if isinstance(value, np.ndarray):
        return value
    if str(value.dtype) == "torch.bfloat16":  # numpy has no such type; the bits travel as uint16
        import torch

        value = value.contiguous().view(torch.int16)
        return value.numpy().view(np.uint16)
    return value.numpy()


def state_hash(state: Any) -> str:
    """SHA-256 of a state's values.

    The order of keys, tuple or list, torch or numpy, and numpy scalar or Python number make no difference;
    dtype, shape and every bit of an array do.
    """
    digest = hashlib.sha256()
    _hash_into(state, (), digest.update)
    return digest.hexdigest()


def _flatten(value: Any, path: tuple[str, ...], tensors: dict[str, Any]) -> Any:
    if len(path) > MAX_DEPTH:
        raise TypeError(f"state{_where(path[:5])}...: nested deeper than {MAX_DEPTH} levels, or a cycle")
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        # Other readers of JSON lose digits of what does not fit in 64 bits (random generators have such).
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
            raise TypeError(f"state{_where(path)}: the key {key!r} begins with '$', which is reserved")
        yield key, item


def _store_array(value: Any, kind: str, path: tuple[str, ...], tensors: dict[str, Any]) -> dict[str, str]:
    # Escaped as in a JSON pointer: {"a/b": ...} and {"a": {"b": ...}} are two names.
    name = "/".join(part.replace("~", "~0").replace("/", "~1") for part in path) or "$state"
    if name == "__metadata__":
        raise TypeError("state['__metadata__']: the name is reserved by the file format")
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
        raise ValueError(f"unknown kind of tensor {kind!r} in a state")
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
    # torch takes seconds to import; where it was not imported there is no tensor to meet.
    torch_module = sys.modules.get("torch")
    return torch_module is not None and isinstance(value, torch_module.Tensor)


def _where(path: tuple[str, ...]) -> str:
    return "".join(f"[{part!r}]" for part in path)
