"""The sum tree (sums that do not drift, never a leaf of priority 0) and prioritized replay, built on it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.data.sum_tree import SumTree
from rl_training.errors import NumericalError

CAPACITIES = [1, 2, 15, 16, 17, 255, 256, 257, 5000]


def tree_of(values: list[float] | np.ndarray) -> SumTree:
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), np.asarray(values, dtype=np.float64))
    return tree


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_total_and_leaves_match_plain_sums(capacity: int) -> None:
    values = np.random.default_rng(capacity).random(capacity)
    tree = tree_of(values)
    assert tree.total == pytest.approx(math.fsum(values), rel=1e-13)
    assert np.array_equal(tree.get(np.arange(capacity)), values)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_find_agrees_with_a_linear_search_over_integer_priorities(capacity: int) -> None:
    # Sums of small integers are exact, so every boundary has one right answer.
    values = np.random.default_rng(capacity).integers(0, 4, size=capacity)
    values[capacity // 2] = 2
    owners = np.repeat(np.arange(capacity), values)
    prefixes = np.arange(values.sum())
    tree = tree_of(values)
    assert np.array_equal(tree.find(prefixes), owners)
    assert np.array_equal(tree.find(prefixes + 0.5), owners)


def test_the_root_equals_the_leaves_after_many_updates_of_mixed_size() -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(3000)
    for _ in range(2000):
        # Huge values that come and go are what a tree corrected by differences never recovers from.
        indices = rng.integers(3000, size=64)
        tree.set(indices, 10.0 ** rng.uniform(-8, 12, size=64))
    tree.set(np.arange(3000), rng.uniform(0, 1e-6, size=3000))
    leaves = tree.get(np.arange(3000))
    assert tree.total == pytest.approx(math.fsum(leaves), rel=1e-13)


def test_a_tree_is_a_pure_function_of_its_leaves() -> None:
    rng = np.random.default_rng(1)
    grown = SumTree(777)
    for _ in range(300):
        grown.set(rng.integers(777, size=rng.integers(1, 40)), float(rng.random()))
    rebuilt = tree_of(grown.get(np.arange(777)))
    prefixes = rng.random(5000) * grown.total
    assert rebuilt.total == grown.total
    assert np.array_equal(rebuilt.find(prefixes), grown.find(prefixes))


def test_of_a_repeated_index_the_last_value_stays() -> None:
    tree = SumTree(40)
    tree.set(np.array([3, 20, 3, 20, 3]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert tree.get(np.array([3, 20])).tolist() == [5.0, 4.0]
    assert tree.total == 9.0


def test_prefix_sums_at_and_beyond_the_total_find_the_last_positive_leaf() -> None:
    tree = tree_of([0.0] * 20 + [1.0, 2.0] + [0.0] * 30)
    assert tree.find(np.array([0.0, 1.0, 3.0, 3.0000001, 1e9])).tolist() == [20, 21, 21, 21, 21]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    values=st.lists(
        st.one_of(st.just(0.0), st.floats(1e-300, 1e12), st.floats(0.1, 1.0)), min_size=1, max_size=400
    ).filter(any),
    fractions=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50),
)
def test_zero_priority_is_never_found_whatever_the_rounding(values: list[float], fractions: list[float]) -> None:
    tree = tree_of(values)
    leaves = np.asarray(values)
    edges = np.cumsum(leaves)
    prefixes = np.concatenate([np.array(fractions) * tree.total, edges, np.nextafter(edges, 0.0), [0.0, tree.total]])
    found = tree.find(prefixes)
    assert ((found >= 0) & (found < len(values))).all()
    assert (leaves[found] > 0.0).all()


def test_frequencies_follow_the_priorities() -> None:
    rng = np.random.default_rng(2)
    values = rng.random(100) * (rng.random(100) > 0.3)
    draws = 200_000
    tree = tree_of(values)
    counts = np.bincount(tree.find(rng.random(draws) * tree.total), minlength=100)
    assert (counts[values == 0.0] == 0).all()
    expected = draws * values[values > 0.0] / values.sum()
    chi_square = ((counts[values > 0.0] - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    assert chi_square < freedom + 4.0 * math.sqrt(2.0 * freedom)


def test_find_leaves_its_argument_alone() -> None:
    prefixes = np.array([0.5, 99.0])
    tree_of([1.0, 1.0]).find(prefixes)
    assert prefixes.tolist() == [0.5, 99.0]


def test_an_empty_tree_and_an_impossible_capacity_are_refused() -> None:
    with pytest.raises(ValueError, match="no positive priority"):
        SumTree(4).find(np.array([0.0]))
    with pytest.raises(ValueError, match="at least 1"):
        SumTree(0)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_predicted_bytes_are_the_bytes_used(capacity: int) -> None:
    assert SumTree.predicted_bytes(capacity) == SumTree(capacity).nbytes


# Prioritized replay


def prioritized_buffer(capacity: int, exponent: float = 0.6, epsilon: float = 0.0) -> ReplayBuffer:
    options = PriorityOptions(exponent, epsilon)
    return ReplayBuffer(ReplayLayout(capacity, 1, (1,), np.float32, (), np.int64), gamma=0.9, prioritized=options)


def fill(buffer: ReplayBuffer, rows: int, valid: bool = True) -> None:
    """The observation says whether a row may be drawn."""
    obs = np.full((1, 1), float(valid))
    flag = np.zeros(1, dtype=bool)
    for _ in range(rows):
        buffer.add(obs, np.zeros(1), np.zeros(1), obs, flag, flag, np.array([valid]))


def test_priority_fixture_of_probabilities_frequencies_and_weights() -> None:
    buffer = prioritized_buffer(4)
    fill(buffer, 4)
    buffer.update_priorities(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]))
    leaves = buffer.state_dict()["priorities"]
    probabilities = [0.14823, 0.224674, 0.286555, 0.340542]
    assert leaves / leaves.sum() == pytest.approx(probabilities, abs=1e-6)
    batch = buffer.sample(20_000, np.random.default_rng(0), 0.4)
    assert batch.indices is not None and batch.weights is not None
    assert np.bincount(batch.indices) / 20_000 == pytest.approx(probabilities, abs=1e-4)
    weights = dict(zip(batch.indices.tolist(), batch.weights.tolist(), strict=True))
    assert [weights[i] for i in range(4)] == pytest.approx([1.0, 0.846745, 0.768229, 0.716978], abs=1e-6)


def test_single_draws_follow_the_priorities_too() -> None:
    buffer = prioritized_buffer(4, exponent=1.0)
    fill(buffer, 4)
    buffer.update_priorities(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]))
    rng = np.random.default_rng(1)
    draws = [int(buffer.sample(1, rng, 0.4).indices[0]) for _ in range(5000)]  # type: ignore[index]
    expected = 5000 * np.array([0.1, 0.2, 0.3, 0.4])
    chi_square = ((np.bincount(draws, minlength=4) - expected) ** 2 / expected).sum()
    assert chi_square < 3 + 4 * math.sqrt(6)


def test_each_stratum_of_the_priority_mass_gives_one_draw() -> None:
    buffer = prioritized_buffer(8)
    fill(buffer, 8)
    for seed in range(20):
        indices = buffer.sample(8, np.random.default_rng(seed), 0.4).indices
        assert indices is not None and sorted(indices) == list(range(8))


def test_weights_use_the_importance_exponent_given_at_the_draw() -> None:
    buffer = prioritized_buffer(2, exponent=1.0)
    fill(buffer, 2)
    buffer.update_priorities(np.arange(2), np.array([1.0, 3.0]))
    for exponent, light in [(0.0, 1.0), (0.5, 3.0**-0.5), (1.0, 1 / 3)]:
        batch = buffer.sample(32, np.random.default_rng(0), exponent)
        assert batch.indices is not None and batch.weights is not None
        assert batch.weights.dtype == torch.float32
        for index, weight in zip(batch.indices, batch.weights.tolist(), strict=True):
            assert weight == pytest.approx([1.0, light][index])
    with pytest.raises(ValueError, match="importance_exponent"):
        buffer.sample(1, np.random.default_rng(0))


def test_unprioritized_batches_have_no_weights_and_take_no_priorities() -> None:
    buffer = ReplayBuffer(ReplayLayout(4, 1, (1,), np.float32, (), np.int64), gamma=0.9)
    fill(buffer, 2)
    assert buffer.sample(2, np.random.default_rng(0), 0.4).weights is None
    with pytest.raises(ValueError, match="prioritized"):
        buffer.update_priorities(np.arange(2), np.ones(2))


def test_new_rows_enter_at_the_highest_priority_so_far_and_never_at_zero() -> None:
    buffer = prioritized_buffer(6, exponent=0.5)
    fill(buffer, 2)
    assert buffer.state_dict()["priorities"].tolist() == [1.0, 1.0]
    buffer.update_priorities(np.array([0]), np.array([0.0]))
    fill(buffer, 1)
    buffer.update_priorities(np.array([1]), np.array([25.0]))
    fill(buffer, 1)
    buffer.update_priorities(np.array([1]), np.array([4.0]))
    fill(buffer, 1)
    assert buffer.state_dict()["priorities"].tolist() == [0.0, 2.0, 1.0, 5.0, 5.0]


def test_priorities_are_magnitudes_plus_epsilon_and_the_last_of_a_repeated_row_stays() -> None:
    buffer = prioritized_buffer(2, exponent=2.0, epsilon=1.0)
    fill(buffer, 2)
    buffer.update_priorities(np.array([0, 1, 0]), np.array([9.0, -3.0, -1.0]))
    assert buffer.state_dict()["priorities"].tolist() == [4.0, 16.0]


def test_invalid_rows_are_never_drawn_by_priority_even_if_updated() -> None:
    rng = np.random.default_rng(4)
    buffer = prioritized_buffer(40, epsilon=1e-6)
    for _ in range(300):
        fill(buffer, 1, valid=bool(rng.random() > 0.4))
        buffer.update_priorities(rng.integers(40, size=8), rng.random(8) * 5)
        if len(buffer):
            assert buffer.sample(32, rng, 0.4).obs.min() == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_priorities_that_are_not_finite_are_refused_and_change_nothing(bad: float) -> None:
    buffer = prioritized_buffer(4)
    fill(buffer, 4)
    with pytest.raises(NumericalError, match="not finite"):
        buffer.update_priorities(np.arange(2), np.array([2.0, bad]))
    assert buffer.state_dict()["priorities"].tolist() == [1.0] * 4


def test_moving_a_batch_keeps_everything_in_it() -> None:
    buffer = prioritized_buffer(4)
    fill(buffer, 4)
    batch = buffer.sample(3, np.random.default_rng(0), 0.4)
    assert batch.to("cpu") is batch
    moved = batch.to("meta")
    assert moved.indices is batch.indices
    for name in ("obs", "actions", "rewards", "next_obs", "discounts", "weights"):
        assert getattr(moved, name).device.type == "meta"
        assert getattr(moved, name).shape == getattr(batch, name).shape
