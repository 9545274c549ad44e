"""Gymnasium spaces as plain JSON, so that a checkpoint carries them without pickle."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

_KEYS = {
    "box": {"low", "high", "shape", "dtype"},
    "discrete": {"n", "start"},
    "multi_discrete": {"nvec", "start", "shape"},
    "multi_binary": {"shape"},
    "dict": {"spaces"},
    "tuple": {"spaces"},
}
_LARGEST_SPACE = 2**28
"""Numbers in one space; a damaged document must not ask for all the memory there is."""


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A JSON value from which `space_from_json` makes an equal space."""
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"type": "box", **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.ravel().tolist(), "start": space.start.ravel().tolist()}
        return {"type": "multi_discrete", **numbers, "shape": list(space.shape)}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "multi_binary", "shape": list(space.shape)}
    if isinstance(space, gym.spaces.Dict):
        # Pairs, not an object: the order of the keys is the order of the encoded columns.
        pairs = [[key, space_to_json(inner)] for key, inner in space.spaces.items()]
        return {"type": "dict", "spaces": pairs}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "tuple", "spaces": [space_to_json(inner) for inner in space.spaces]}
    raise ValueError(f"space {space} has no JSON form")


def space_from_json(document: Any) -> gym.Space[Any]:
    """The space of a `space_to_json` value; anything else raises ValueError."""
    kind = document.get("type") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ValueError(f"unknown space type {kind!r}: known are {', '.join(_KEYS)}")
    if set(document) != {"type", *_KEYS[kind]}:
        raise ValueError(f"a {kind} space has the keys type, {', '.join(sorted(_KEYS[kind]))} and no others")
    try:
        return _build(kind, document)
    except (AssertionError, AttributeError, IndexError, OverflowError, TypeError) as problem:
        raise ValueError(f"broken {kind} space: {problem}") from problem


def _build(kind: str, document: dict[str, Any]) -> gym.Space[Any]:
    if kind == "discrete":
        return gym.spaces.Discrete(_integer(document["n"]), start=_integer(document["start"]))
    if kind == "tuple":
        return gym.spaces.Tuple([space_from_json(inner) for inner in _list(document["spaces"])])
    if kind == "dict":
        pairs = [_list(pair) for pair in _list(document["spaces"])]
        if any(len(pair) != 2 or not isinstance(pair[0], (str, int)) for pair in pairs):
            raise ValueError("a dict space is a list of [name, space]")
        if len({pair[0] for pair in pairs}) != len(pairs):
            raise ValueError("a dict space names a key twice")
        return gym.spaces.Dict([(name, space_from_json(inner)) for name, inner in pairs])
    shape = tuple(_integer(size) for size in _list(document["shape"]))
    if any(size < 0 for size in shape) or _product(shape) > _LARGEST_SPACE:
        raise ValueError(f"impossible shape {list(shape)}")
    if kind == "multi_binary":
        return gym.spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "multi_discrete":
        nvec, start = ([_integer(number) for number in _list(document[key])] for key in ("nvec", "start"))
        return gym.spaces.MultiDiscrete(np.reshape(nvec, shape), start=np.reshape(start, shape))
    name = document["dtype"]
    if not isinstance(name, str) or not (name == "bool" or name.startswith(("int", "uint", "float"))):
        raise ValueError(f"a box of {name!r} is not numeric")
    dtype = np.dtype(name)
    low, high = (_bound_from_json(document[key], shape, dtype) for key in ("low", "high"))
    if (low > high).any():
        raise ValueError("a box has a lower bound above the upper one")
    return gym.spaces.Box(low, high, shape=shape, dtype=dtype.type)


def _bound_to_json(bound: np.ndarray[Any, Any]) -> Any:
    """One value when all are equal (an image has thousands), else the flat list; JSON has no infinity."""
    flat: np.ndarray[Any, Any] = bound.ravel()
    if flat.size and (flat == flat[0]).all():
        flat = flat[:1]
    values = [str(value) if value in (math.inf, -math.inf) else value for value in flat.tolist()]
    return values[0] if len(values) == 1 else values


def _bound_from_json(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values = value if isinstance(value, list) else [value] * min(1, _product(shape))
    for number in values:
        if number not in ("inf", "-inf") and not isinstance(number, (int, float)):
            raise ValueError(f"{number!r} is no bound of a box")
        if number != number:
            raise ValueError("a bound of a box is not a number")
    numbers = np.array([float(number) if isinstance(number, str) else number for number in values], dtype)
    return np.full(shape, numbers[0]) if len(numbers) == 1 else numbers.reshape(shape)


def _product(shape: tuple[int, ...]) -> int:
    # Python integers, for numpy's product would wrap round on an absurd shape.
    product = 1
    for size in shape:
        product *= size
    return product


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an integer")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value
