"""Compare two run directories: metric streams, checkpoints and replay segments. Wall-clock values are left out.

This module reads the files itself. It imports nothing of `rl_training`, because the two runs come from two versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# Metrics that describe the machine and not the experiment. The library has the same list (MACHINE_FIELDS).
MACHINE_FIELDS = frozenset(
    {"wall_seconds", "steps_per_second", "time_env", "time_act", "time_learn", "time_other"}
    | {"failed_saves", "env_restarts", "env_timeouts", "actors_alive", "actor_restarts"}
    | {"learner_waits", "actors_wait"}
)
# The length of the metric stream in bytes depends on the digits of its wall-clock values.
MACHINE_STATE = frozenset({"metrics_offset"})
# What must agree besides tensors and state. The settings are those that `auto` leaves to the library.
OTHER_FIELDS = {
    "manifest.json": ("kind", "algorithm", "env_steps", "number", "exact"),
    "config.json": ("compile", "threads"),
}

Names = Mapping[str, str]


class Array(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def first_difference(old: Path, new: Path, renamed: Names | None = None, added: Collection[str] = ()) -> str | None:
    """The first difference between two run directories, or None.

    `renamed` maps state names of `old` to those of `new`. Metrics and state names in `added` may be in `new` only.

    The order is: metrics, then checkpoints by step, then replay segments. Every checkpoint that both runs kept is
    compared, the last one and the best agent among them.
    """
    renamed = renamed or {}
    differences = (
        difference
        for compare in (_compare_metrics, _compare_checkpoints, _compare_segments)
        for difference in compare(old, new, renamed, added)
    )
    return next(differences, None)


def _compare_metrics(old: Path, new: Path, renamed: Names, added: Collection[str]) -> Iterator[str]:
    one, two = (_metric_lines(run / "metrics.jsonl") for run in (old, new))
    for number, (left, right) in enumerate(zip(one, two, strict=False), start=1):
        place = f"metrics.jsonl line {number} ({left.get('kind')}, step {left.get('env_steps')})"
        for key in [*left, *(key for key in right if key not in left and key not in added)]:
            if difference := _value_difference(left, right, key):
                yield f"{place}: {difference}"
    if len(one) != len(two):
        yield f"metrics.jsonl: {len(one)} lines in OLD, {len(two)} lines in NEW"
    if not one:
        yield "metrics.jsonl: no lines"


def _metric_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key not in MACHINE_FIELDS} for line in lines]


def _compare_checkpoints(old: Path, new: Path, renamed: Names, added: Collection[str]) -> Iterator[str]:
    one, two = ({path.name: path for path in (run / "checkpoints").glob("*-*")} for run in (old, new))
    for name in sorted(one.keys() | two.keys(), key=lambda name: (name.split("-")[1:], name)):
        if name not in one or name not in two:
            yield f"checkpoint {name}: {_only_in(name, one)}"
            continue
        for difference in _compare_checkpoint(one[name], two[name], renamed, added):
            yield f"checkpoint {name}: {difference}"
    if not one:
        yield "checkpoints: none in OLD"


def _compare_checkpoint(old: Path, new: Path, renamed: Names, added: Collection[str]) -> Iterator[str]:
    files = sorted({path.name for folder in (old, new) for path in folder.glob("*.safetensors")})
    for name in files:
        yield from _compare_arrays(_renamed(read_arrays(old / name), renamed), read_arrays(new / name))
    if not files:
        yield "no tensors"
    one = dict(_leaves(_read_json(old / "state.json"), renamed))
    two = dict(_leaves(_read_json(new / "state.json"), {}))
    for key in [*one, *(key for key in two if key not in one and key not in added)]:
        if difference := _value_difference(one, two, key):
            yield f"state.json: {difference}"
    for name, fields in OTHER_FIELDS.items():
        left, right = (_read_json(folder / name) for folder in (old, new))
        for key in fields:
            if difference := _value_difference(left, right, key):
                yield f"{name}: {difference}"


def _compare_segments(old: Path, new: Path, renamed: Names, added: Collection[str]) -> Iterator[str]:
    one, two = ({path.name: path for path in (run / "replay").glob("*.safetensors")} for run in (old, new))
    for name in sorted(one.keys() | two.keys()):
        if name not in one or name not in two:
            yield f"replay {name}: {_only_in(name, one)}"
            continue
        for difference in _compare_arrays(_renamed(read_arrays(one[name]), renamed), read_arrays(two[name])):
            yield f"replay {name}: {difference}"


def _compare_arrays(old: dict[str, Array], new: dict[str, Array]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"tensor {name}: {_only_in(name, old)}"
        elif old[name] != new[name]:
            yield f"tensor {name}: {_array_difference(old[name], new[name])}"


def _array_difference(old: Array, new: Array) -> str:
    if old[:2] != new[:2]:
        return f"{old.dtype}{list(old.shape)} in OLD, {new.dtype}{list(new.shape)} in NEW"
    size = max(1, len(old.data) // max(1, _elements(old.shape)))
    starts = range(0, len(old.data), size)
    changed = [i for i, start in enumerate(starts) if old.data[start : start + size] != new.data[start : start + size]]
    return f"{len(changed)} of {_elements(old.shape)} elements differ, the first at {changed[0]}"


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file; none if there is no file."""
    if not path.exists():
        return {}
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            arrays[name] = Array(entry["dtype"], tuple(entry["shape"]), content[start + first : start + end])
    return arrays


def _leaves(state: Any, renamed: Names, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The values of a nested state by their path, such as `loop/env_steps`. Tensors are marks that name an array."""
    if isinstance(state, dict) and "$tensor" in state:
        yield _new_name("/".join(path), renamed), state | {"$tensor": _new_name(state["$tensor"], renamed)}
    elif isinstance(state, dict) and state:
        for key, value in state.items():
            if key not in MACHINE_STATE:
                yield from _leaves(value, renamed, (*path, key))
    elif isinstance(state, list) and state:
        for index, value in enumerate(state):
            yield from _leaves(value, renamed, (*path, str(index)))
    else:
        yield _new_name("/".join(path), renamed), state


def _renamed(arrays: dict[str, Array], renamed: Names) -> dict[str, Array]:
    return {_new_name(name, renamed): array for name, array in arrays.items()}


def _new_name(name: str, renamed: Names) -> str:
    """The name in the new version. An entry of `renamed` holds for the name itself and for everything below it."""
    matches = [old for old in renamed if name == old or name.startswith(f"{old}/")]
    if not matches:
        return name
    longest = max(matches, key=len)
    return renamed[longest] + name.removeprefix(longest)


def _value_difference(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> str | None:
    if key not in old or key not in new:
        return None if key not in old and key not in new else f"{key} {_only_in(key, old)}"
    # As text: 1, 1.0 and true are three values, and so are 0.0 and -0.0.
    one, two = (json.dumps(values[key], sort_keys=True) for values in (old, new))
    return None if one == two else f"{key} is {_short(one)} in OLD, {_short(two)} in NEW"


def _only_in(name: str, old: Mapping[str, Any]) -> str:
    return "only in OLD" if name in old else "only in NEW"


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
