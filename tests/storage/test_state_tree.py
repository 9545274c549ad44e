"""JSON and arrays restore a state bit for bit, and its hash depends on every bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_helpers import save
from rl_training.storage.checkpoints import list_checkpoints, load_checkpoint
from rl_training.storage.state_tree import flatten_state, state_hash, unflatten_state

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "uint16",
    "uint32",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_and_tensors_of_every_dtype_are_restored_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 48, dtype=np.uint8)
    array = (raw % 2).astype(bool) if dtype == "bool" else raw.view(dtype)
    state = {
        "numpy": array,
        "torch": torch.from_numpy(array.copy()),
        "strided": array[::3],
        "transposed": torch.from_numpy(array.copy()).reshape(2, -1).T,
        "zero_dimensional": array[:1].reshape(()),
        "empty": array[:0].reshape(0, 4),
        "scalar": array[0],
    }
    restored = load_checkpoint(save(tmp_path, 1, state=state)).state
    assert list(restored) == list(state)
    for name, expected in state.items():
        assert type(restored[name]) is type(expected), name
        assert restored[name].dtype == expected.dtype
        assert tuple(restored[name].shape) == tuple(expected.shape)
        bits = [np.asarray(value).tobytes() for value in (restored[name], expected)]
        assert bits[0] == bits[1] or (name == "scalar" and np.isnan(expected))
    assert restored["numpy"].flags.writeable


def test_bfloat16_parameter_and_negative_zero_keep_their_bits() -> None:
    state = {"half": torch.randn(5).bfloat16(), "parameter": torch.nn.Parameter(torch.tensor([-0.0, 1.0]))}
    tree, tensors = flatten_state(state)
    restored = unflatten_state(json.loads(json.dumps(tree)), tensors)
    assert torch.equal(restored["half"], state["half"]) and restored["half"].dtype == torch.bfloat16
    assert not restored["parameter"].requires_grad
    assert torch.signbit(restored["parameter"]).tolist() == [True, False]


def test_plain_values_are_restored_equal_and_with_the_same_type(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    generator.random(3)
    state = {
        "rng": generator.bit_generator.state,
        "large": [2**63, -(2**63), 2**64, -(2**200), 10**30],
        "floats": [0.1, -0.0, 1e-310, float("inf"), float("-inf"), 5.0],
        "nan": float("nan"),
        "others": [True, None, "ü \ud800 \x00 $ /", "", {}, []],
        "a/b": {"c": np.arange(2)},
        "a": {"b": {"c": np.arange(3)}, "b/c": np.arange(4), "b~1c": np.arange(5)},
    }
    restored = load_checkpoint(save(tmp_path, 1, state=state)).state
    nan = restored.pop("nan")
    assert nan != nan
    for name in ("rng", "large", "others"):
        assert restored[name] == state[name]
        assert repr(restored[name]) == repr(state[name])
    assert repr(restored["floats"]) == repr(state["floats"])
    lengths = [len(restored["a/b"]["c"]), *(len(x) for x in (restored["a"]["b"]["c"], restored["a"]["b/c"]))]
    assert [*lengths, len(restored["a"]["b~1c"])] == [2, 3, 4, 5]
    other = np.random.default_rng()
    other.bit_generator.state = restored["rng"]
    assert other.random() == generator.random()


def test_tuples_become_lists_and_dict_subclasses_become_dicts() -> None:
    state = {"pair": (1, (2.0, "x")), "weights": torch.nn.Linear(2, 2).state_dict()}
    tree, tensors = flatten_state(state)
    restored = unflatten_state(tree, tensors)
    assert restored["pair"] == [1, [2.0, "x"]]
    assert type(restored["weights"]) is dict


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": {"b": [0, object()]}}, ["['a']['b']['1']", "object"]),
        ({"a": {1: 2}}, ["['a']", "1", "string"]),
        ({"$tensor": "x"}, ["$tensor"]),
        ({"a": np.array(["x"])}, ["['a']", "<U1"]),
        ({"a": np.array([None])}, ["['a']", "O"]),
        ({"a": np.array([1.0], ">f8")}, ["['a']", ">f8"]),
        ({"a": {1, 2}}, ["set"]),
        ({"a": torch.zeros(2, dtype=torch.complex64)}, ["complex64"]),
        ({"__metadata__": np.zeros(1)}, ["__metadata__"]),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_with_its_path(tmp_path: Path, state: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as caught:
        save(tmp_path, 1, state=state)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not list_checkpoints(tmp_path)


def test_a_cycle_and_too_deep_a_state_are_refused_and_the_deepest_allowed_loads(tmp_path: Path) -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with pytest.raises(TypeError, match="cycle"):
        flatten_state(cycle)
    deep: Any = np.zeros(1)
    for _ in range(90):
        deep = {"d": deep}
    assert state_hash(load_checkpoint(save(tmp_path, 1, state=deep)).state) == state_hash(deep)
    with pytest.raises(TypeError, match="deeper"):
        flatten_state({"d": deep})


def test_state_hash_depends_on_values_dtypes_and_shapes_but_not_on_the_order_of_keys(tmp_path: Path) -> None:
    base = {"a": np.arange(6.0), "b": (1, "x", None)}
    same = {"b": [np.int64(1), "x", None], "a": torch.arange(6, dtype=torch.float64)}
    assert state_hash(base) == state_hash(same)
    assert state_hash(base) == state_hash(load_checkpoint(save(tmp_path, 1, state=base)).state)
    tiny = np.arange(6.0)
    tiny[3] = np.nextafter(3.0, 4.0)
    different = [
        {**base, "a": tiny},
        {**base, "a": np.arange(6.0).astype(np.float32)},
        {**base, "a": np.arange(6.0).reshape(2, 3)},
        {**base, "b": [1.0, "x", None]},
        {**base, "b": [True, "x", None]},
        {**base, "b": ["1", "x", None]},
        {**base, "b": [1, ["x", None]]},
        {**base, "c": 0},
        {"a": base["a"], "c": base["b"]},
    ]
    hashes = {state_hash(state) for state in [base, *different]}
    assert len(hashes) == len(different) + 1
    assert state_hash({"a": -0.0}) != state_hash({"a": 0.0})
