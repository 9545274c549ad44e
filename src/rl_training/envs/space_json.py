"""Gymnasium spaces as plain JSON, so that a checkpoint carries them without pickle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.text import one_line

# A few bytes of a document can ask for all the memory there is, so its size is checked before a space is made.
MOST_BYTES = 16 * 2**20  # of one bound of all boxes together: a stack of five color images of 1024 x 1024
MOST_ACTIONS = 65_536  # numbers in an action
MOST_SPACES = 2_000  # inside a Dict or Tuple
MOST_DIMENSIONS = 32
_BOX_DTYPES = frozenset(
    [
        "bool",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        "float16",
        "float32",
        "float64",
    ]
)


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A JSON value from which `space_from_json` makes an equal space."""
    for name, kind in _KINDS.items():
        if isinstance(space, kind.space):
            return {"type": name, **kind.to_json(space)}
    raise ValueError(f"space {space} has no JSON form")


def space_from_json(document: Any, *, most_numbers: int = MOST_BYTES) -> gym.Space[Any]:
    """The space of a `space_to_json` value; anything else raises ValueError, too large a space as well."""
    check_size(document, most_numbers)
    return _make_space(document)


def check_size(document: Any, most_numbers: int = MOST_BYTES) -> None:
    """ValueError if a document asks for too many spaces or numbers. None of them is made."""
    spaces, numbers, size, level = 0, 0, 0, [document]
    while level:
        spaces += len(level)
        inner: list[Any] = []
        for space in level:
            if not isinstance(space, dict):
                continue
            length, itemsize = _length(space)
            numbers, size = numbers + length, size + length * itemsize
            children = space.get("spaces")
            if isinstance(children, list):
                pairs = space.get("type") == "dict"
                inner += [child[-1] if pairs and isinstance(child, list) and child else child for child in children]
        if spaces > MOST_SPACES:
            raise ValueError(f"more than {MOST_SPACES:,} spaces inside one")
        if numbers > most_numbers or size > MOST_BYTES:
            raise ValueError(f"a space of {numbers:,} numbers and {size:,} bytes is too large")
        level = inner


def _length(space: dict[str, Any]) -> tuple[int, int]:
    """The numbers that a space, or its one-hot encoding, consists of, and the bytes of each."""
    sizes = [space["n"]] if "n" in space else space.get("nvec")
    if isinstance(sizes, list):
        return sum(size for size in sizes if type(size) is int and size > 0), 1
    dtype = space.get("dtype")
    itemsize = np.dtype(dtype).itemsize if isinstance(dtype, str) and dtype in _BOX_DTYPES else 1
    shape = space.get("shape")
    # As if there were no zeros: an empty array of 2^60 rows is refused too.
    known = isinstance(shape, list) and all(type(size) is int for size in shape)
    return (math.prod(max(1, size) for size in shape) if known and shape is not None else 0), itemsize


def _make_space(document: Any) -> gym.Space[Any]:
    name = document.get("type") if isinstance(document, dict) else None
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"unknown space type {one_line(name, 60)!r}: known are {', '.join(_KINDS)}")
    kind = _KINDS[name]
    if set(document) != {"type", *kind.keys}:
        raise ValueError(f"a {name} space has the keys type, {', '.join(sorted(kind.keys))} and no others")
    try:
        return kind.from_json(document)
    except (ArithmeticError, AssertionError, AttributeError, IndexError, MemoryError, TypeError) as error:
        raise ValueError(f"broken {name} space: {one_line(error)}") from error


def _box_to_json(space: gym.spaces.Box) -> dict[str, Any]:
    bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
    return {**bounds, "shape": list(space.shape), "dtype": str(space.dtype)}


def _box_from_json(document: dict[str, Any]) -> gym.Space[Any]:
    shape, name = _shape(document), document["dtype"]
    if not isinstance(name, str) or name not in _BOX_DTYPES:
        raise ValueError(f"a box of {one_line(name, 60)!r} is not numeric")
    dtype = np.dtype(name)
    low, high = (_bound_from_json(document[key], shape, dtype) for key in ("low", "high"))
    if (low > high).any():
        raise ValueError("a box has a lower bound above the upper one")
    return gym.spaces.Box(low, high, shape=shape, dtype=dtype.type)


def _discrete_to_json(space: gym.spaces.Discrete) -> dict[str, Any]:
    return {"n": int(space.n), "start": int(space.start)}


def _discrete_from_json(document: dict[str, Any]) -> gym.Space[Any]:
    return gym.spaces.Discrete(_integer(document["n"]), start=_integer(document["start"]))


def _multi_discrete_to_json(space: gym.spaces.MultiDiscrete) -> dict[str, Any]:
    return {"nvec": space.nvec.ravel().tolist(), "start": space.start.ravel().tolist(), "shape": list(space.shape)}


def _multi_discrete_from_json(document: dict[str, Any]) -> gym.Space[Any]:
    shape = _shape(document)
    nvec, start = ([_integer(number) for number in _list(document[key])] for key in ("nvec", "start"))
    return gym.spaces.MultiDiscrete(np.reshape(nvec, shape), start=np.reshape(start, shape))


def _multi_binary_to_json(space: gym.spaces.MultiBinary) -> dict[str, Any]:
    return {"shape": list(space.shape)}


def _multi_binary_from_json(document: dict[str, Any]) -> gym.Space[Any]:
    shape = _shape(document)
    return gym.spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)


def _dict_to_json(space: gym.spaces.Dict) -> dict[str, Any]:
    # Pairs, not an object: the order of the keys is the order of the encoded columns.
    return {"spaces": [[key, space_to_json(inner)] for key, inner in space.spaces.items()]}


def _dict_from_json(document: dict[str, Any]) -> gym.Space[Any]:
    pairs = [_list(pair) for pair in _list(document["spaces"])]
    if any(len(pair) != 2 or not isinstance(pair[0], (str, int)) for pair in pairs):
        raise ValueError("a dict space is a list of [name, space]")
    if len({pair[0] for pair in pairs}) != len(pairs):
        raise ValueError("a dict space names a key twice")
    return gym.spaces.Dict([(name, _make_space(inner)) for name, inner in pairs])


def _tuple_to_json(space: gym.spaces.Tuple[Any]) -> dict[str, Any]:
    return {"spaces": [space_to_json(inner) for inner in space.spaces]}


def _tuple_from_json(document: dict[str, Any]) -> gym.Space[Any]:
    return gym.spaces.Tuple([_make_space(inner) for inner in _list(document["spaces"])])


class _Kind(NamedTuple):
    """One type of space: its class, the keys of its JSON object, and the way there and back."""

    space: type[gym.Space[Any]]
    keys: frozenset[str]
    to_json: Callable[[Any], dict[str, Any]]
    from_json: Callable[[dict[str, Any]], gym.Space[Any]]


_KINDS = {
    "box": _Kind(gym.spaces.Box, frozenset({"low", "high", "shape", "dtype"}), _box_to_json, _box_from_json),
    "discrete": _Kind(gym.spaces.Discrete, frozenset({"n", "start"}), _discrete_to_json, _discrete_from_json),
    "multi_discrete": _Kind(
        gym.spaces.MultiDiscrete,
        frozenset({"nvec", "start", "shape"}),
        _multi_discrete_to_json,
        _multi_discrete_from_json,
    ),
    "multi_binary": _Kind(gym.spaces.MultiBinary, frozenset({"shape"}), _multi_binary_to_json, _multi_binary_from_json),
    "dict": _Kind(gym.spaces.Dict, frozenset({"spaces"}), _dict_to_json, _dict_from_json),
    "tuple": _Kind(gym.spaces.Tuple, frozenset({"spaces"}), _tuple_to_json, _tuple_from_json),
}


def _shape(document: dict[str, Any]) -> tuple[int, ...]:
    shape = tuple(_integer(size) for size in _list(document["shape"]))
    if any(size < 0 for size in shape) or len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"impossible shape {one_line(list(shape), 60)}")
    return shape


def _bound_to_json(bound: np.ndarray[Any, Any]) -> Any:
    """One value when all are equal (an image has thousands), else the flat list; JSON has no infinity."""
    flat: np.ndarray[Any, Any] = bound.ravel()
    if flat.size and (flat == flat[0]).all():
        flat = flat[:1]
    values = [str(value) if value in (math.inf, -math.inf) else value for value in flat.tolist()]
    return values[0] if len(values) == 1 else values


def _bound_from_json(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values = value if isinstance(value, list) else [value] * min(1, math.prod(shape))
    for number in values:
        if number not in ("inf", "-inf") and not isinstance(number, (int, float)):
            raise ValueError(f"{one_line(number, 60)!r} is not a bound of a box")
        if number != number:
            raise ValueError("a bound of a box is not a number")
    numbers = np.array([float(number) if isinstance(number, str) else number for number in values], dtype)
    return np.full(shape, numbers[0]) if len(numbers) == 1 else numbers.reshape(shape)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{one_line(value, 60)!r} is not an integer")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{one_line(value, 60)!r} is not a list")
    return value
