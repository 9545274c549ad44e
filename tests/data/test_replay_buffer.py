"""The replay buffer: n-step windows, uniform draws, storage, restore. For priorities see test_sum_tree.py."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import astuple, dataclass, fields

import numpy as np
import pytest
import torch

from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.data.transitions import Transitions


@dataclass
class Step:
    """One environment's step as the slow reference keeps it."""

    obs: float
    action: int
    reward: float
    next_obs: float
    terminated: bool
    truncated: bool
    valid: bool


def make_buffer(capacity: int, num_envs: int = 1, **options: object) -> ReplayBuffer:
    options.setdefault("gamma", 0.9)
    return ReplayBuffer(ReplayLayout(capacity, num_envs, (1,), np.float32, (), np.int64), **options)  # type: ignore[arg-type]


def add_steps(buffer: ReplayBuffer, steps: list[Step]) -> None:
    obs, actions, rewards, next_obs, *flags = map(np.array, zip(*map(astuple, steps), strict=True))
    buffer.add(obs[:, None], actions, rewards, next_obs[:, None], *flags)


def add_chain(buffer: ReplayBuffer, rewards: list[float], terminated: int = -1, truncated: int = -1) -> None:
    """One environment; the observation before step i is i, after it i + 1."""
    for i, reward in enumerate(rewards):
        add_steps(buffer, [Step(i, i, reward, i + 1, i == terminated, i == truncated, True)])


def fill(buffer: ReplayBuffer, rows: int) -> None:
    for i in range(rows):
        add_steps(buffer, [Step(i, i, i, i + 1, False, False, True) for _ in range(buffer.num_envs)])


def random_history(rng: np.random.Generator, rows: int, num_envs: int) -> list[list[Step]]:
    """Random ends, rows to skip after an end (as NEXT_STEP autoreset makes them) and at odd places too."""
    history: list[list[Step]] = []
    for _ in range(rows):
        row = []
        for env in range(num_envs):
            after_end = bool(history) and (history[-1][env].terminated or history[-1][env].truncated)
            valid = bool(rng.random() > (0.6 if after_end else 0.08))
            reward = float(np.float32(rng.normal()))
            obs, next_obs = (float(np.float32(x)) for x in rng.normal(size=2))
            action = int(rng.integers(5))
            row.append(Step(obs, action, reward, next_obs, rng.random() < 0.12, rng.random() < 0.08, valid))
        history.append(row)
    return history


def walk(held: list[list[Step]], row: int, env: int, n_step: int, gamma: float) -> tuple[float, float, float]:
    """Reference: rewards, discount and next observation of one window, step by step."""
    rewards = 0.0
    for k in range(n_step):
        step = held[row + k][env]
        rewards += gamma**k * step.reward
        if step.terminated:
            return rewards, 0.0, step.next_obs
        is_newest = row + k + 1 == len(held)
        if step.truncated or is_newest or not held[row + k + 1][env].valid:
            break
    return rewards, gamma ** (k + 1), step.next_obs


def recursive_target(held: list[list[Step]], row: int, env: int, n_step: int, gamma: float) -> float:
    """The target by another formula: G(n) = r + gamma G(n-1), where V(s) is the observation itself."""
    step = held[row][env]
    if step.terminated:
        return step.reward
    ends = step.truncated or row + 1 == len(held) or not held[row + 1][env].valid
    if n_step == 1 or ends:
        return step.reward + gamma * step.next_obs
    return step.reward + gamma * recursive_target(held, row + 1, env, n_step - 1, gamma)


def sample_all(buffer: ReplayBuffer, importance_exponent: float | None = None) -> dict[int, Transitions]:
    """Every row that can be drawn, by flat index."""
    batch = buffer.sample(40 * buffer.capacity, np.random.default_rng(0), importance_exponent)
    assert batch.indices is not None
    firsts = {int(index): position for position, index in enumerate(batch.indices)}
    obs, actions, rewards = batch.obs, batch.actions, batch.rewards
    return {
        index: Transitions(obs[at], actions[at], rewards[at], batch.next_obs[at], batch.discounts[at])
        for index, at in firsts.items()
    }


def in_order(buffer: ReplayBuffer, name: str) -> list[float]:
    rows = sample_all(buffer)
    return [float(getattr(rows[index], name)) for index in sorted(rows)]


def assert_same_batch(left: Transitions, right: Transitions) -> None:
    for field in fields(Transitions):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        assert (ours is None) == (theirs is None), field.name
        if ours is not None:
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), field.name


def test_n_step_fixture_with_a_termination() -> None:
    buffer = make_buffer(10, n_step=3)
    add_chain(buffer, [1, 2, 3, 4], terminated=3)
    assert in_order(buffer, "rewards") == pytest.approx([5.23, 7.94, 6.6, 4.0])
    assert in_order(buffer, "discounts") == pytest.approx([0.729, 0.0, 0.0, 0.0])
    assert in_order(buffer, "next_obs") == [3.0, 4.0, 4.0, 4.0]


def test_n_step_fixture_with_a_truncation_keeps_the_discount_of_the_steps_taken() -> None:
    buffer = make_buffer(10, n_step=3)
    add_chain(buffer, [1, 2, 3, 4, 100], truncated=3)
    assert in_order(buffer, "rewards")[:4] == pytest.approx([5.23, 7.94, 6.6, 4.0])
    assert in_order(buffer, "discounts")[:4] == pytest.approx([0.729, 0.729, 0.81, 0.9])
    assert in_order(buffer, "next_obs")[:4] == [3.0, 4.0, 4.0, 4.0]


def test_bootstrapped_return_fixture() -> None:
    # Rewards 1..4, values of the successors 10..40, an end after the third step.
    buffer = make_buffer(10, n_step=2)
    for i in range(4):
        add_steps(buffer, [Step(0, 0, i + 1, 10 * (i + 1), i == 2, False, True)])
    rows = sample_all(buffer)
    targets = [float(rows[i].rewards + rows[i].discounts * rows[i].next_obs) for i in range(4)]
    assert targets == pytest.approx([19.0, 4.7, 3.0, 40.0])


def test_windows_stop_at_a_cut_and_a_cut_of_an_empty_buffer_is_nothing() -> None:
    buffer = make_buffer(10, n_step=3)
    buffer.cut()
    add_chain(buffer, [1, 1])
    buffer.cut()
    add_chain(buffer, [10, 10, 10])
    assert in_order(buffer, "rewards")[:3] == pytest.approx([1.9, 1.0, 27.1])
    assert in_order(buffer, "discounts")[:3] == pytest.approx([0.81, 0.9, 0.729])


def test_neither_a_truncation_nor_a_cut_at_the_same_step_revives_a_terminated_row() -> None:
    for n_step, truncated in [(1, 0), (1, -1), (3, 0), (3, -1)]:
        buffer = make_buffer(4, n_step=n_step)
        add_chain(buffer, [1], terminated=0, truncated=truncated)
        buffer.cut()
        assert in_order(buffer, "discounts") == [0.0]


def test_a_window_never_runs_from_the_newest_row_into_the_oldest() -> None:
    buffer = make_buffer(4, n_step=3)
    add_chain(buffer, [1, 2, 3, 4, 50, 60])  # slots now hold steps 4, 5, 2, 3
    assert in_order(buffer, "obs") == [4.0, 5.0, 2.0, 3.0]
    assert in_order(buffer, "rewards") == pytest.approx([50 + 54, 60, 3 + 3.6 + 40.5, 4 + 45 + 48.6])
    assert in_order(buffer, "discounts") == pytest.approx([0.81, 0.9, 0.729, 0.729])


def test_an_infinite_reward_outside_the_window_does_not_leak_in() -> None:
    buffer = make_buffer(4, n_step=3)
    add_chain(buffer, [1, 2, math.inf], terminated=1)
    assert in_order(buffer, "rewards")[:2] == pytest.approx([2.8, 2.0])


@pytest.mark.parametrize("n_step", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("seed", range(8))
def test_windows_match_two_slow_references_on_random_histories(seed: int, n_step: int) -> None:
    rng = np.random.default_rng(100 * seed + n_step)
    num_envs, gamma = int(rng.integers(1, 4)), float(rng.choice([0.9, 0.97, 1.0]))
    slots = int(rng.integers(1, 12))
    prioritized = PriorityOptions() if seed % 2 else None
    capacity = slots * num_envs + num_envs - 1
    buffer = make_buffer(capacity, num_envs, gamma=gamma, n_step=n_step, prioritized=prioritized)
    history = random_history(rng, rows=int(rng.integers(2, 30)), num_envs=num_envs)
    for steps in history:
        add_steps(buffer, steps)
        if rng.random() < 0.1:
            buffer.cut()
            for step in steps:
                step.truncated = True
    held = history[-slots:]
    oldest = len(history) - len(held)
    expected_rows = {
        (oldest + row) % slots * num_envs + env: (row, env)
        for row, env in itertools.product(range(len(held)), range(num_envs))
        if held[row][env].valid
    }
    assert len(buffer) == len(expected_rows)
    if not expected_rows:
        with pytest.raises(ValueError, match="no transitions"):
            buffer.sample(1, rng, 0.4)
        return
    drawn = sample_all(buffer, importance_exponent=0.4)
    assert drawn.keys() == expected_rows.keys()
    for index, (row, env) in expected_rows.items():
        batch, step = drawn[index], held[row][env]
        rewards, discount, next_obs = walk(held, row, env, n_step, gamma)
        assert batch.obs.item() == step.obs
        assert batch.actions.item() == step.action
        assert batch.rewards.item() == np.float32(rewards)
        assert batch.discounts.item() == np.float32(discount)
        assert batch.next_obs.item() == next_obs
        target = batch.rewards.item() + batch.discounts.item() * batch.next_obs.item()
        assert target == pytest.approx(recursive_target(held, row, env, n_step, gamma), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("valid_share", [1.0, 0.8, 0.1])
@pytest.mark.parametrize("rows", [30, 75])
def test_draws_are_uniform_over_the_valid_rows(valid_share: float, rows: int) -> None:
    rng = np.random.default_rng(3)
    buffer = make_buffer(100, num_envs=2)
    valid = rng.random((rows, 2)) < valid_share
    for row in valid:
        add_steps(buffer, [Step(0, 0, 0, 0, False, False, bool(flag)) for flag in row])
    drawable = np.zeros((50, 2), dtype=bool)
    for row in range(max(0, rows - 50), rows):
        drawable[row % 50] = valid[row]
    counts = np.bincount(np.asarray(buffer.sample(60_000, rng).indices), minlength=100)
    assert (counts[~drawable.reshape(-1)] == 0).all()
    expected, freedom = 60_000 / drawable.sum(), drawable.sum() - 1
    chi_square = ((counts[drawable.reshape(-1)] - expected) ** 2 / expected).sum()
    assert chi_square < freedom + 4.0 * math.sqrt(2.0 * freedom)


def test_the_same_generator_state_gives_the_same_batch() -> None:
    buffer = make_buffer(64, n_step=3)
    fill(buffer, 40)
    np.random.seed(0)
    first = buffer.sample(16, np.random.default_rng(5))
    assert first.actions.dtype == torch.int64
    np.random.seed(1)
    assert_same_batch(first, buffer.sample(16, np.random.default_rng(5)))


def test_a_batch_is_a_copy_that_later_rows_do_not_change() -> None:
    buffer = make_buffer(2)
    add_chain(buffer, [1, 2])
    batch = buffer.sample(8, np.random.default_rng(0))
    before = batch.obs.clone()
    add_chain(buffer, [7, 7, 7, 7])
    assert torch.equal(batch.obs, before)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize(
    ("capacity", "num_envs", "observation", "action"),
    [
        (1000, 3, ((4,), np.float32), ((), np.int64)),
        (257, 1, ((4, 12, 12), np.uint8), ((), np.int32)),
        (50, 8, ((17,), np.float64), ((6,), np.float64)),
        (3, 8, ((), np.float32), ((2,), np.int64)),
    ],
)
def test_predicted_bytes_are_the_bytes_used(
    capacity: int, num_envs: int, observation: tuple, action: tuple, prioritized: bool
) -> None:
    layout = ReplayLayout(capacity, num_envs, *observation, *action)
    buffer = ReplayBuffer(layout, gamma=0.9, prioritized=PriorityOptions() if prioritized else None)
    assert ReplayBuffer.predicted_bytes(layout, prioritized=prioritized) == buffer.nbytes
    assert buffer.capacity == max(num_envs, capacity - capacity % num_envs)


@pytest.mark.parametrize(("given", "stored"), [(np.uint8, torch.uint8), (np.float64, torch.float32)])
def test_batches_have_the_types_that_learners_expect(given: type, stored: torch.dtype) -> None:
    for n_step in (1, 3):
        buffer = ReplayBuffer(ReplayLayout(8, 2, (3, 5), given, (2,), np.float64), gamma=0.9, n_step=n_step)
        obs: np.ndarray = np.full((2, 3, 5), 200, dtype=given)
        buffer.add(obs, np.full((2, 2), 0.5), np.ones(2), obs + 1, np.zeros(2, bool), np.zeros(2, bool))
        batch = buffer.sample(7, np.random.default_rng(0))
        assert batch.obs.dtype == batch.next_obs.dtype == stored
        assert batch.obs.shape == batch.next_obs.shape == (7, 3, 5)
        assert (batch.obs == 200).all() and (batch.next_obs == 201).all()
        assert batch.actions.dtype == torch.float32 and batch.actions.shape == (7, 2)
        assert batch.rewards.dtype == batch.discounts.dtype == torch.float32
        assert batch.rewards.shape == batch.discounts.shape == (7,)
        assert len(batch) == 7


def test_a_step_of_the_wrong_shape_is_refused_instead_of_broadcast() -> None:
    buffer = make_buffer(8, num_envs=2)
    flags = np.zeros(2, bool)
    for obs, rewards in [(np.zeros(1), np.zeros(2)), (np.zeros((2, 1)), np.zeros(()))]:
        with pytest.raises(ValueError, match="shapes"):
            buffer.add(obs, np.zeros(2), rewards, obs, flags, flags)
    with pytest.raises(ValueError, match="n_step must be at least 1"):
        make_buffer(8, n_step=0)
    for capacity, num_envs in ((0, 1), (8, 0)):
        with pytest.raises(ValueError, match="capacity and num_envs must be at least 1"):
            make_buffer(capacity, num_envs)
    assert len(buffer) == buffer.rows_written == 0


def train_on(buffer: ReplayBuffer, rows: list[list[Step]], rng: np.random.Generator) -> list[Transitions]:
    batches = []
    for row in rows:
        add_steps(buffer, row)
        if len(buffer):
            batches.append(buffer.sample(8, rng, 0.5))
            if buffer.state_dict()["prioritized"]:
                buffer.update_priorities(batches[-1].indices, rng.normal(size=8))  # type: ignore[arg-type]
    return batches


@pytest.mark.parametrize("prioritized", [None, PriorityOptions()])
@pytest.mark.parametrize("rows_before", [0, 5, 20, 33, 64])
def test_a_restored_buffer_goes_on_exactly_like_the_one_that_was_saved(
    rows_before: int, prioritized: PriorityOptions | None
) -> None:
    def build() -> ReplayBuffer:
        return make_buffer(60, 3, n_step=3, prioritized=prioritized)

    history = random_history(np.random.default_rng(rows_before), rows_before + 50, 3)
    original, rng = build(), np.random.default_rng(6)
    segments: dict[int, dict[str, np.ndarray]] = {}
    exported = 0
    for begin in range(0, rows_before, 13):  # 13 does not divide the ring of 20: a segment goes half stale
        train_on(original, history[begin : min(begin + 13, rows_before)], rng)
        original.cut()
        segments[exported] = original.export_rows(exported, original.rows_written)
        exported = original.rows_written
    state = original.state_dict()
    arrays = {"priorities": state.pop("priorities")} if prioritized else {}
    state = json.loads(json.dumps(state)) | arrays

    restored = build()
    fill(restored, 7)  # what was in it before must not show
    restored.load_state_dict(state)
    for start, rows in segments.items():
        if start + len(rows["rewards"]) > restored.oldest_row:
            restored.import_rows(start, rows)

    assert len(restored) == len(original)
    assert (restored.rows_written, restored.oldest_row) == (original.rows_written, original.oldest_row)
    ours, theirs = (b.export_rows(b.oldest_row, b.rows_written) for b in (original, restored))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    rng_state = rng.bit_generator.state
    later = train_on(original, history[rows_before:], rng)
    rng.bit_generator.state = rng_state
    again = train_on(restored, history[rows_before:], rng)
    assert len(later) == len(again) > 40
    for left, right in zip(later, again, strict=True):
        assert_same_batch(left, right)


def test_exported_rows_are_copies_numbered_from_the_first_step_ever() -> None:
    buffer = make_buffer(4)
    add_chain(buffer, [0, 1, 2, 3, 4, 5])
    assert (buffer.oldest_row, buffer.rows_written) == (2, 6)
    rows = buffer.export_rows(3, 6)
    add_chain(buffer, [9, 9, 9, 9])
    assert rows["rewards"].tolist() == [[3.0], [4.0], [5.0]]
    for start, stop in [(5, 10), (7, 11), (9, 8)]:
        with pytest.raises(ValueError, match="are gone"):
            buffer.export_rows(start, stop)


def test_state_that_does_not_fit_is_refused_by_name() -> None:
    state = make_buffer(8, 2).state_dict()
    others = {
        "capacity is 8, not 6": make_buffer(6, 2),
        "num_envs is 2, not 1": make_buffer(8, 1),
        "prioritized is False, not True": make_buffer(8, 2, prioritized=PriorityOptions()),
        r"observation_shape is \[1\], not \[3\]": ReplayBuffer(
            ReplayLayout(8, 2, (3,), np.float32, (), np.int64), gamma=0.9
        ),
        "action_dtype is 'int64'": ReplayBuffer(ReplayLayout(8, 2, (1,), np.float32, (), np.float32), gamma=0.9),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)
    prioritized = make_buffer(8, 2, prioritized=PriorityOptions())
    fill(prioritized, 3)
    for forged, words in (
        (np.ones(5), r"float64 \(5,\), not float64 \(6,\)"),
        (np.ones(6, np.int64), r"int64 \(6,\), not float64"),
        (np.array([1, 1, np.nan, 1, 1, 1]), "not finite"),
        (np.array([1, 1, -1.0, 1, 1, 1]), "negative"),
    ):
        with pytest.raises(ValueError, match=words):
            prioritized.load_state_dict({**prioritized.state_dict(), "priorities": forged})


def test_rows_that_do_not_fit_are_refused_by_name() -> None:
    buffer = make_buffer(8, 2)
    fill(buffer, 3)
    rows = buffer.export_rows(0, 3)
    lacking = {name: array for name, array in rows.items() if name != "truncated"}
    for message, start, arrays in [
        ("truncated is missing", 0, lacking),
        ("rewards is float64", 0, {**rows, "rewards": rows["rewards"].astype(np.float64)}),
        ("obs is float32", 0, {**rows, "obs": rows["obs"][:, :1]}),
        ("only 3 rows", 1, rows),
        ("do not fit", 0, {**rows, "valid": rows["valid"][:2]}),
    ]:
        with pytest.raises(ValueError, match=message):
            buffer.import_rows(start, arrays)


@pytest.mark.parametrize("prioritized", [None, PriorityOptions()])
def test_segments_may_be_imported_in_any_order(prioritized: PriorityOptions | None) -> None:
    """A segment that is half stale must not overwrite the rows that took its slots."""
    original, restored = (make_buffer(60, 3, n_step=3, prioritized=prioritized) for _ in range(2))
    history = random_history(np.random.default_rng(1), 46, 3)
    segments = []
    for begin in range(0, 46, 13):
        for row in history[begin : begin + 13]:
            add_steps(original, row)
        segments.append((begin, original.export_rows(begin, original.rows_written)))
    restored.load_state_dict(original.state_dict())
    for start, rows in reversed(segments):
        restored.import_rows(start, rows)
    assert len(restored) == len(original)
    ours, theirs = (b.export_rows(b.oldest_row, b.rows_written) for b in (original, restored))
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
