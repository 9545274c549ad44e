"""Spaces: what an agent sees of observations, and what an env gets of actions."""

from __future__ import annotations

import json
import tracemalloc
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError

TWO = gym_spaces.Discrete(2)
BOX = gym_spaces.Box(-1.0, 1.0, (2,), np.float32)

OBSERVATIONS = {
    "vector": gym_spaces.Box(-2.0, 2.0, (3,), np.float32),
    "double_matrix": gym_spaces.Box(-2.0, 2.0, (2, 3), np.float64),
    "integers": gym_spaces.Box(0, 9, (4,), np.int64),
    "scalar": gym_spaces.Box(0.0, 1.0, (), np.float32),
    "bytes": gym_spaces.Box(0, 255, (5,), np.uint8),
    "discrete": gym_spaces.Discrete(4),
    "discrete_from_minus_two": gym_spaces.Discrete(4, start=-2),
    "multi_discrete": gym_spaces.MultiDiscrete([2, 3, 4]),
    "multi_discrete_grid": gym_spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi_discrete_from_one": gym_spaces.MultiDiscrete([2, 3], start=[1, 5]),
    "multi_binary": gym_spaces.MultiBinary(5),
    "multi_binary_grid": gym_spaces.MultiBinary((2, 3)),
    "dict": gym_spaces.Dict({"b": gym_spaces.Discrete(3), "a": gym_spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    "tuple": gym_spaces.Tuple((gym_spaces.Discrete(3, start=1), gym_spaces.MultiBinary(2))),
    "nested": gym_spaces.Dict(
        {
            "outer": gym_spaces.Tuple(
                (gym_spaces.Discrete(3), gym_spaces.Dict({"x": gym_spaces.MultiDiscrete([2, 2]), "w": BOX}))
            ),
            "image": gym_spaces.Box(0, 255, (2, 2, 3), np.float32),
        }
    ),
}


def samples_of(space: Any, count: int, seed: int = 3) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def batched(space: Any, samples: list[Any]) -> Any:
    """Exactly what gymnasium's vector envs make of single observations."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_a_batch_encodes_to_the_flattened_samples_of_gymnasium(name: str) -> None:
    space = OBSERVATIONS[name]
    spaces = Spaces(space, TWO)
    samples = samples_of(space, 6)
    encoded = spaces.encode(batched(space, samples))
    expected = np.stack([gym_spaces.flatten(space, sample) for sample in samples]).astype(np.float32)
    assert encoded.dtype == spaces.observation_dtype == np.float32
    assert encoded.shape == (6, *spaces.observation_shape)
    np.testing.assert_array_equal(encoded, expected)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_single_listed_and_object_samples_encode_like_the_batch(name: str) -> None:
    space = OBSERVATIONS[name]
    spaces = Spaces(space, TWO)
    samples = samples_of(space, 4)
    encoded = spaces.encode(batched(space, samples))
    final_observations = np.full(4, None, dtype=object)
    for index, sample in enumerate(samples):
        final_observations[index] = sample
    np.testing.assert_array_equal(np.stack([spaces.encode_one(sample) for sample in samples]), encoded)
    np.testing.assert_array_equal(spaces.encode(samples), encoded)
    np.testing.assert_array_equal(spaces.encode(final_observations[[True, False, True, True]]), encoded[[0, 2, 3]])


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_a_batch_is_told_from_a_single_observation(name: str) -> None:
    space = OBSERVATIONS[name]
    spaces = Spaces(space, TWO)
    samples = samples_of(space, 2)
    assert not spaces.is_batched(samples[0])
    assert spaces.is_batched(batched(space, samples))
    assert spaces.is_batched(batched(space, samples[:1]))
    assert spaces.is_batched(samples)


def test_one_hot_columns_by_hand() -> None:
    start_two = Spaces(gym_spaces.Discrete(3, start=2), TWO)
    np.testing.assert_array_equal(start_two.encode(np.array([2, 4])), [[1, 0, 0], [0, 0, 1]])
    several = Spaces(gym_spaces.MultiDiscrete([2, 3], start=[1, 0]), TWO)
    np.testing.assert_array_equal(several.encode(np.array([[1, 2], [2, 0]])), [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]])


def test_dict_parts_follow_the_order_of_the_space_and_not_of_the_value() -> None:
    part = gym_spaces.Box(0.0, 9.0, (1,), np.float32)
    value = {"b": np.array([[2.0]]), "a": np.array([[1.0]])}
    np.testing.assert_array_equal(Spaces(gym_spaces.Dict({"b": part, "a": part}), TWO).encode(value), [[1.0, 2.0]])
    ordered = gym_spaces.Dict(OrderedDict([("b", part), ("a", part)]))
    np.testing.assert_array_equal(Spaces(ordered, TWO).encode(value), [[2.0, 1.0]])


def test_an_image_keeps_shape_and_bytes() -> None:
    spaces = Spaces(gym_spaces.Box(0, 255, (4, 5, 3), np.uint8), TWO)
    frames = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    assert spaces.observation_shape == (4, 5, 3)
    assert spaces.observation_dtype == np.uint8
    encoded = spaces.encode(frames)
    assert encoded.dtype == np.uint8
    np.testing.assert_array_equal(encoded, frames)


def test_flat_float32_observations_are_passed_on_without_a_copy() -> None:
    observations = np.zeros((8, 3), np.float32)
    spaces = Spaces(gym_spaces.Box(-1.0, 1.0, (3,), np.float32), TWO)
    assert np.shares_memory(spaces.encode(observations), observations)


def test_an_empty_batch_encodes_to_no_rows() -> None:
    assert Spaces(BOX, TWO).encode(np.zeros((0, 2), np.float32)).shape == (0, 2)
    assert Spaces(gym_spaces.Discrete(3), TWO).encode(np.zeros(0, np.int64)).shape == (0, 3)


@pytest.mark.parametrize(
    "space",
    [
        gym_spaces.Text(4),
        gym_spaces.Sequence(gym_spaces.Discrete(2)),
        gym_spaces.Graph(BOX, gym_spaces.Discrete(2)),
        gym_spaces.OneOf((TWO, BOX)),
    ],
    ids=lambda space: type(space).__name__,
)
def test_an_unsupported_observation_space_is_named_with_its_place(space: Any) -> None:
    with pytest.raises(EnvError, match=type(space).__name__):
        Spaces(space, TWO)
    with pytest.raises(EnvError, match=r"observation\['deep'\]\[1\]"):
        Spaces(gym_spaces.Dict({"deep": gym_spaces.Tuple((TWO, space))}), TWO)


@pytest.mark.parametrize("space", [gym_spaces.Dict({}), gym_spaces.Tuple(()), gym_spaces.Box(0.0, 1.0, (0,))])
def test_an_observation_without_numbers_is_refused(space: Any) -> None:
    with pytest.raises(EnvError, match="empty"):
        Spaces(space, TWO)


def test_a_category_outside_the_space_is_refused() -> None:
    spaces = Spaces(gym_spaces.Dict({"room": gym_spaces.Discrete(3, start=1)}), TWO)
    for wrong in (0, 4):
        with pytest.raises(EnvError, match=r"observation\['room'\] is outside its space"):
            spaces.encode({"room": np.array([1, wrong])})


def test_observations_of_the_wrong_shape_are_refused() -> None:
    spaces = Spaces(BOX, TWO)
    with pytest.raises(EnvError, match=r"\(4, 3\)"):
        spaces.encode(np.zeros((4, 3), np.float32))
    with pytest.raises(EnvError, match=r"\(4, 3\)"):
        spaces.is_batched(np.zeros((4, 3), np.float32))
    with pytest.raises(EnvError, match="ragged"):
        spaces.encode([np.zeros(2), np.zeros(3)])
    pair = Spaces(gym_spaces.Dict({"a": TWO, "b": TWO}), TWO)
    with pytest.raises(EnvError, match=r"has 3 samples but observation\['a'\] has 2"):
        pair.encode({"a": np.zeros(2, np.int64), "b": np.zeros(3, np.int64)})
    with pytest.raises(EnvError, match="only some parts"):
        pair.is_batched({"a": 1, "b": np.zeros(3, np.int64)})


def test_discrete_actions_add_the_start() -> None:
    spaces = Spaces(BOX, gym_spaces.Discrete(3, start=5))
    assert (spaces.action_kind, spaces.action_shape, spaces.action_sizes) == ("discrete", (), (3,))
    given = spaces.to_env_actions(np.array([0, 2]))
    np.testing.assert_array_equal(given, [5, 7])
    assert given.dtype == np.int64


def test_multi_discrete_actions_are_stored_flat_and_from_zero() -> None:
    space = gym_spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]])
    spaces = Spaces(BOX, space)
    assert (spaces.action_kind, spaces.action_shape, spaces.action_sizes) == (
        "multi_discrete",
        (4,),
        (2, 3, 4, 5),
    )
    stored = np.array([[0, 0, 0, 0], [1, 2, 3, 4]])
    given = spaces.to_env_actions(stored)
    np.testing.assert_array_equal(given, [[[0, 1], [2, 3]], [[1, 3], [5, 7]]])
    assert all(space.contains(action) for action in given)


def test_multi_binary_actions_have_two_categories_each() -> None:
    space = gym_spaces.MultiBinary((2, 2))
    spaces = Spaces(BOX, space)
    assert (spaces.action_kind, spaces.action_shape, spaces.action_sizes) == (
        "multi_binary",
        (4,),
        (2, 2, 2, 2),
    )
    given = spaces.to_env_actions(np.array([[0, 1, 1, 0]]))
    assert space.contains(given[0])
    np.testing.assert_array_equal(given, [[[0, 1], [1, 0]]])


def test_box_actions_reach_both_bounds_and_are_clipped() -> None:
    spaces = Spaces(BOX, gym_spaces.Box(0.0, 3.0, (1,), np.float32))
    assert (spaces.action_kind, spaces.action_shape, spaces.action_dim) == ("box", (1,), 1)
    given = spaces.to_env_actions(np.array([[-1.0], [0.0], [2.0 / 3.0], [1.0], [7.0], [-7.0]]))
    np.testing.assert_allclose(given[:, 0], [0.0, 1.5, 2.5, 3.0, 3.0, 0.0], rtol=1e-6)
    assert given.dtype == np.float32


def test_an_action_beyond_a_bound_is_the_action_at_the_bound_to_the_last_bit() -> None:
    generator = np.random.default_rng(0)
    low = generator.uniform(-10.0, 10.0, 200)
    spaces = Spaces(BOX, gym_spaces.Box(low, low + generator.uniform(0.1, 10.0, 200), dtype=np.float64))
    at_bounds = spaces.to_env_actions(np.repeat([[-1.0], [1.0]], 200, axis=1))
    beyond = spaces.to_env_actions(np.repeat([[-3.0], [3.0]], 200, axis=1))
    np.testing.assert_array_equal(beyond, at_bounds)


@pytest.mark.parametrize(("shape", "dtype"), [((3,), np.float32), ((2, 3), np.float64), ((), np.float32)])
def test_box_actions_are_scaled_linearly_inside_the_bounds(shape: tuple[int, ...], dtype: Any) -> None:
    generator = np.random.default_rng(5)
    low = generator.uniform(-5.0, 0.0, shape).astype(dtype)
    space = gym_spaces.Box(low, low + generator.uniform(0.1, 9.0, shape).astype(dtype), shape, dtype)
    spaces = Spaces(BOX, space)
    stored = generator.uniform(-1.0, 1.0, (50, *spaces.action_shape)).astype(np.float32)
    stored[0], stored[1] = -1.0, 1.0
    given = spaces.to_env_actions(stored)
    assert given.shape == (50, *shape)
    assert given.dtype == dtype
    assert batch_space(space, 50).contains(given)
    expected = space.low + (stored.reshape(given.shape) + 1.0) / 2.0 * (space.high - space.low)
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_dimensions_without_two_bounds_are_not_scaled() -> None:
    low = np.array([0.0, -np.inf, 1.0, -np.inf], np.float32)
    high = np.array([3.0, np.inf, np.inf, 2.0], np.float32)
    spaces = Spaces(BOX, gym_spaces.Box(low, high))
    stored = np.array([[-1.0, 40.0, 6.0, -50.0], [1.0, -40.0, -6.0, 5.0]])
    given = spaces.to_env_actions(stored)
    # The one bound that a half-bounded dimension has still holds.
    np.testing.assert_allclose(given, [[0.0, 40.0, 6.0, -50.0], [3.0, -40.0, 1.0, 2.0]])


def test_equal_and_enormous_bounds_stay_finite() -> None:
    largest = np.finfo(np.float64).max
    spaces = Spaces(BOX, gym_spaces.Box(np.array([2.0, -largest]), np.array([2.0, largest]), dtype=np.float64))
    given = spaces.to_env_actions(np.array([[0.7, 1.0], [-1.0, -1.0]]))
    np.testing.assert_array_equal(given, [[2.0, largest], [2.0, -largest]])


@pytest.mark.parametrize(
    "space",
    [
        gym_spaces.Box(0, 3, (2,), np.int64),
        gym_spaces.Dict({"a": TWO}),
        gym_spaces.Tuple((TWO, BOX)),
        gym_spaces.Text(3),
    ],
)
def test_an_unsupported_action_space_is_refused_on_one_line(space: Any) -> None:
    with pytest.raises(EnvError, match=r"action space .* is not supported: wrap the env") as caught:
        Spaces(BOX, space)
    assert "\n" not in str(caught.value)


ACTIONS = {
    "discrete": gym_spaces.Discrete(3, start=1),
    "multi_discrete": gym_spaces.MultiDiscrete([[2, 3]], start=[[1, 0]]),
    "multi_binary": gym_spaces.MultiBinary(3),
    "box": gym_spaces.Box(np.array([0.1, -np.inf]), np.array([np.inf, 0.3]), dtype=np.float64),
}


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS.keys())
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_spaces_survive_json(observation: Any, action: Any) -> None:
    spaces = Spaces(observation, action)
    text = json.dumps(spaces.to_json(), allow_nan=False)
    again = Spaces.from_json(json.loads(text))
    assert again.observation_space == observation
    assert again.action_space == action
    assert again == spaces
    assert again != Spaces(gym_spaces.Box(0.0, 1.0, (77,)), action)


def test_json_of_an_image_is_short_and_keeps_the_order_of_keys() -> None:
    image = Spaces(gym_spaces.Box(0, 255, (84, 84, 4), np.uint8), TWO)
    assert len(json.dumps(image.to_json())) < 200
    backwards = Spaces(gym_spaces.Dict(OrderedDict([("z", TWO), ("a", BOX)])), TWO)
    assert list(Spaces.from_json(backwards.to_json()).observation_space.spaces) == ["z", "a"]


GOOD_BOX = {"type": "box", "low": 0.0, "high": 1.0, "shape": [2], "dtype": "float32"}


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"type": "text"},
        {"type": ["box"]},
        {"type": "discrete", "n": 3},
        {"type": "discrete", "n": 3, "start": 0, "more": 1},
        {"type": "discrete", "n": 0, "start": 0},
        {"type": "discrete", "n": "3", "start": 0},
        {"type": "discrete", "n": True, "start": 0},
        {"type": "multi_binary", "shape": 3},
        {"type": "multi_binary", "shape": [-1]},
        {"type": "multi_binary", "shape": [2**40, 2**40]},
        {"type": "multi_discrete", "nvec": [2, 3], "start": [0], "shape": [2]},
        {"type": "dict", "spaces": {"a": GOOD_BOX}},
        {"type": "dict", "spaces": [["a", GOOD_BOX], ["a", GOOD_BOX]]},
        {"type": "dict", "spaces": [[{}, GOOD_BOX]]},
        {"type": "tuple", "spaces": [None]},
        {**GOOD_BOX, "dtype": "object"},
        {**GOOD_BOX, "dtype": "float7"},
        {**GOOD_BOX, "low": "minus"},
        {**GOOD_BOX, "low": float("nan")},
        {**GOOD_BOX, "low": None},
        {**GOOD_BOX, "low": [0.0, 0.0, 0.0]},
        {**GOOD_BOX, "low": 2.0},
        {**GOOD_BOX, "high": "inf", "dtype": "int64"},
    ],
    ids=str,
)
def test_a_broken_space_document_is_a_value_error(broken: Any) -> None:
    with pytest.raises(ValueError):
        Spaces.from_json({"observation": broken, "action": {"type": "discrete", "n": 2, "start": 0}})


def test_a_document_of_other_keys_or_of_an_action_nobody_takes_is_a_value_error() -> None:
    for document in (None, {}, {"observation": GOOD_BOX}):
        with pytest.raises(ValueError, match="'observation' and 'action'"):
            Spaces.from_json(document)
    with pytest.raises(ValueError, match="action space"):
        Spaces.from_json({"observation": GOOD_BOX, "action": {"type": "tuple", "spaces": [GOOD_BOX]}})


def _box(shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"type": "box", "low": 0, "high": 1, "shape": shape, "dtype": dtype}


_TWO = {"type": "discrete", "n": 2, "start": 0}
TOO_LARGE = {
    "box": _box([2**28]),
    "box of doubles": _box([2**21 + 1], "float64"),
    "image": _box([256, 1024, 1024], "uint8"),
    "many small boxes": {"type": "tuple", "spaces": [_box([2**20])] * 20},
    "boxes in a dict": {"type": "dict", "spaces": [[str(number), _box([2**20])] for number in range(20)]},
    "empty box of many rows": _box([0, 2**60]),
    "discrete": {"type": "discrete", "n": 2**40, "start": 0},
    "multi_discrete": {"type": "multi_discrete", "nvec": [2**40, 2], "start": [0, 0], "shape": [2]},
    "multi_binary": {"type": "multi_binary", "shape": [2**28]},
    "a tuple of thousands": {"type": "tuple", "spaces": [_TWO] * 2_001},
    "empty tuples": {"type": "tuple", "spaces": [{"type": "tuple", "spaces": []}] * 2_001},
    "dimensions": _box([1] * 33),
}


@pytest.mark.parametrize("document", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_document_that_asks_for_too_much_is_refused_before_anything_is_made(document: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"too large|spaces inside one|impossible shape"):
            Spaces.from_json({"observation": document, "action": _TWO})
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_actions_have_a_lower_limit_than_observations() -> None:
    image = _box([4, 1024, 1024], "uint8")
    assert Spaces.from_json({"observation": image, "action": _TWO}).observation_shape == (4, 1024, 1024)
    with pytest.raises(ValueError, match="too large"):
        Spaces.from_json({"observation": image, "action": _box([65_537])})


def test_spaces_that_could_not_be_loaded_again_are_not_saved() -> None:
    too_large = Spaces(gym_spaces.MultiBinary(2**24 + 1), TWO)
    with pytest.raises(EnvError, match="too large: wrap the env"):
        too_large.to_json()


def test_the_message_about_a_broken_space_is_short() -> None:
    for broken in ({"type": "x" * 100_000}, _box([1]) | {"dtype": "y" * 100_000}, _box([1]) | {"low": "z" * 100_000}):
        with pytest.raises(ValueError, match=r"\w") as caught:
            Spaces.from_json({"observation": broken, "action": _TWO})
        assert len(str(caught.value)) < 300
