"""The frame store: every byte that a buffer of whole stacks would give, at a fraction of its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import replay_memory
from rl_training.data.frame_store import FrameStore
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.errors import ConfigError

SIDE = 3
PONG = ReplayLayout(1_000_000, 8, (4, 84, 84), "uint8", (), "int64", stack=4)


class Screens:
    """Random games of several envs, as the collector gives their steps: stacks padded with black, true ends."""

    def __init__(self, num_envs: int, stack: int, seed: int, *, mean_length: float = 12.0, channels: int = 1):
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.stack, self.channels, self.end = num_envs, stack, channels, 1 / mean_length
        self.obs = np.stack([self._start() for _ in range(num_envs)])

    def _picture(self) -> np.ndarray:
        # Few colors and few pixels: frames that are equal by chance must do no harm.
        return self.rng.integers(0, 3, (self.channels, SIDE, SIDE), dtype=np.uint8)

    def _start(self) -> np.ndarray:
        black = np.zeros(((self.stack - 1) * self.channels, SIDE, SIDE), np.uint8)
        return np.concatenate([black, self._picture()])

    def reset(self) -> None:
        self.obs = np.stack([self._start() for _ in range(self.num_envs)])

    def step(self) -> tuple[np.ndarray, ...]:
        frames = np.stack([self._picture() for _ in range(self.num_envs)])
        next_obs = np.concatenate([self.obs[:, self.channels :], frames], 1)
        ends = self.rng.random(self.num_envs) < self.end
        truncated = ends & (self.rng.random(self.num_envs) < 0.3)
        life_lost = ends & ~truncated & (self.rng.random(self.num_envs) < 0.3)
        obs, self.obs = self.obs, next_obs.copy()
        for env in np.flatnonzero(ends & ~life_lost):  # after a lost life the game, and its stack, go on
            self.obs[env] = self._start()
        actions = self.rng.integers(0, 4, self.num_envs)
        rewards = self.rng.normal(size=self.num_envs).astype(np.float32)
        valid = self.rng.random(self.num_envs) < 0.9
        return obs, actions, rewards, next_obs, ends & ~truncated, truncated, valid


def make_pair(
    capacity: int, num_envs: int = 2, stack: int = 4, channels: int = 1, *, prioritized: bool = False, n_step: int = 1
) -> tuple[ReplayBuffer, ReplayBuffer]:
    """One buffer that stores frames, and one that stores whole stacks."""
    shape = (stack * channels, SIDE, SIDE)
    options = PriorityOptions() if prioritized else None
    common: dict[str, Any] = {"gamma": 0.9, "n_step": n_step, "prioritized": options}
    layout = ReplayLayout(capacity, num_envs, shape, "uint8", (), "int64", stack=stack)
    return ReplayBuffer(layout, **common), ReplayBuffer(replace(layout, stack=None), **common)


def assert_same_batch(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    for name in ("obs", "actions", "rewards", "next_obs", "discounts"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=0)
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert (ours.weights is None) == (theirs.weights is None)
    if ours.weights is not None:
        torch.testing.assert_close(ours.weights, theirs.weights, rtol=0, atol=0)


def every_row(buffer: ReplayBuffer) -> Any:
    return buffer._gather(np.flatnonzero(buffer._flat["valid"]), None)


@settings(max_examples=40, deadline=None)
@given(
    num_envs=st.integers(1, 3),
    stack=st.integers(1, 4),
    channels=st.sampled_from([1, 3]),
    n_step=st.integers(1, 4),
    steps=st.integers(1, 260),
    cut_every=st.sampled_from([0, 17]),
    seed=st.integers(0, 10_000),
)
def test_batches_equal_those_of_stacked_storage_byte_for_byte(
    num_envs: int, stack: int, channels: int, n_step: int, steps: int, cut_every: int, seed: int
) -> None:
    """Random ends of all kinds, barriers, rows that are no transitions, and a ring of 100 that wraps."""
    frames, naive = make_pair(100 * num_envs, num_envs, stack, channels, n_step=n_step)
    screens = Screens(num_envs, stack, seed, mean_length=120, channels=channels)
    for number in range(1, steps + 1):
        step = screens.step()
        frames.add(*step)
        naive.add(*step)
        if cut_every and number % cut_every == 0 and number > steps - 40:
            frames.cut()
            naive.cut()
            screens.reset()
    if cut_every == 0 or stack == 1:
        assert len(frames) >= 0.9 * len(naive)
    if len(frames) == 0:
        return
    batch = every_row(frames)
    assert_same_batch(batch, naive._gather(batch.indices, None))
    if len(frames) == len(naive):
        rng, same = np.random.default_rng(1), np.random.default_rng(1)
        assert_same_batch(frames.sample(64, rng), naive.sample(64, same))


@pytest.mark.parametrize("n_step", [1, 3])
def test_prioritized_batches_equal_those_of_stacked_storage(n_step: int) -> None:
    frames, naive = make_pair(128, prioritized=True, n_step=n_step)
    screens, rng, same = Screens(2, 4, 5, mean_length=200), np.random.default_rng(2), np.random.default_rng(2)
    for number in range(200):
        step = screens.step()
        frames.add(*step)
        naive.add(*step)
        if number > 10:
            batch, expected = frames.sample(16, rng, 0.5), naive.sample(16, same, 0.5)
            assert_same_batch(batch, expected)
            priorities = np.random.default_rng(number).random(16)
            frames.update_priorities(batch.indices, priorities)
            naive.update_priorities(expected.indices, priorities)


@pytest.mark.parametrize("prioritized", [False, True])
def test_games_too_short_for_the_spare_frames_cost_old_rows_and_never_a_wrong_byte(prioritized: bool) -> None:
    frames, naive = make_pair(100, stack=4, prioritized=prioritized)
    screens = Screens(2, 4, 3, mean_length=3)
    for _ in range(400):
        step = screens.step()
        frames.add(*step)
        naive.add(*step)
        batch = every_row(frames)
        assert_same_batch(batch, naive._gather(batch.indices, None))
        assert len(frames) == np.count_nonzero(frames._flat["valid"])
    assert 20 < len(frames) < len(naive)
    if prioritized:
        drawn = frames.sample(500, np.random.default_rng(0), 0.4).indices
        assert frames._flat["valid"][drawn].all()


def test_images_that_are_no_stack_are_kept_whole() -> None:
    frames, naive = make_pair(60, num_envs=1, stack=2)
    rng = np.random.default_rng(0)
    for _ in range(100):
        obs, next_obs = rng.integers(0, 256, (2, 1, 2, SIDE, SIDE), dtype=np.uint8)
        step = (obs, np.zeros(1, np.int64), np.ones(1, np.float32), next_obs, np.array([False]), np.array([False]))
        frames.add(*step)
        naive.add(*step)
    batch = every_row(frames)
    assert len(batch) > 10
    assert_same_batch(batch, naive._gather(batch.indices, None))


@pytest.mark.parametrize("mean_length", [150, 4])
@pytest.mark.parametrize("prioritized", [False, True])
def test_rows_written_in_pieces_and_read_back_make_the_same_buffer(mean_length: int, prioritized: bool) -> None:
    screens = Screens(2, 4, 8, mean_length=mean_length)
    live, _ = make_pair(64, prioritized=prioritized, n_step=2)
    pieces: list[tuple[int, dict[str, np.ndarray]]] = []
    start = 0
    for number in range(1, 151):
        live.add(*screens.step())
        if prioritized and number % 5 == 0:
            live.update_priorities(live.sample(4, np.random.default_rng(number), 0.4).indices, np.arange(4.0))
        if number % 30 == 0:
            live.cut()
            screens.reset()
            start = max(start, live.oldest_row)
            middle = (start + live.rows_written) // 2
            for first, stop in ((start, middle), (middle, live.rows_written)):
                pieces.append((first, live.export_rows(first, stop)))
            start = live.rows_written
    copy, _ = make_pair(64, prioritized=prioritized, n_step=2)
    copy.load_state_dict(live.state_dict())
    for first, rows in pieces:
        copy.import_rows(first, rows)
    assert len(copy) == len(live) > 0
    for _ in range(100):
        assert_same_batch(every_row(copy), every_row(live))
        rng, same = np.random.default_rng(4), np.random.default_rng(4)
        exponent = 0.4 if prioritized else None
        assert_same_batch(copy.sample(32, rng, exponent), live.sample(32, same, exponent))
        step = screens.step()
        copy.add(*step)
        live.add(*step)


def test_rows_without_their_frames_are_refused() -> None:
    live, naive = make_pair(32)
    screens = Screens(2, 4, 0)
    for _ in range(5):
        step = screens.step()
        live.add(*step)
        naive.add(*step)
    copy, _ = make_pair(32)
    copy.load_state_dict(live.state_dict())
    rows = live.export_rows(0, 5)
    with pytest.raises(ValueError, match=r"frames of .* are missing"):
        copy.import_rows(0, {name: array for name, array in rows.items() if name != "frames"})
    with pytest.raises(ValueError, match="frames are missing"):
        copy.import_rows(0, rows | {"frames": rows["frames"][:-1]})
    with pytest.raises(ValueError, match="stack is 4, not 2"):
        make_pair(32, stack=2, channels=2)[0].load_state_dict(live.state_dict())


def test_a_million_steps_of_atari_fit_into_seven_and_a_half_gigabytes() -> None:
    for prioritized in (False, True):
        assert ReplayBuffer.predicted_bytes(PONG, prioritized=prioritized) <= 7.5e9
    assert ReplayBuffer.predicted_bytes(replace(PONG, stack=None)) > 56e9


@pytest.mark.parametrize("prioritized", [False, True])
def test_memory_is_what_was_predicted(prioritized: bool) -> None:
    layout = replace(PONG, capacity=20_000)
    options = PriorityOptions() if prioritized else None
    buffer = ReplayBuffer(layout, gamma=0.99, prioritized=options)
    assert ReplayBuffer.predicted_bytes(layout, prioritized=prioritized) == buffer.nbytes
    assert buffer.nbytes / buffer.capacity <= 7500
    store = buffer.observations
    assert isinstance(store, FrameStore)
    arrays = sum(value.nbytes for value in vars(store).values() if isinstance(value, np.ndarray) and value.base is None)
    columns = sum(rows.nbytes for rows in store.rows.values())
    assert 0 <= arrays - store.nbytes < 1000  # nothing hides beside what `nbytes` counts
    assert store.nbytes - columns == 8 * store.places * 84 * 84


def test_a_buffer_beyond_four_fifths_of_memory_is_refused_with_one_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 5_000_000_000)
    needed = ReplayBuffer.predicted_bytes(PONG)
    with pytest.raises(ConfigError) as caught:
        replay_memory.check_replay_fits(needed, PONG.capacity)
    text = str(caught.value)
    assert "needs 7.4 GB, but only 80% of the 5.0 GB available may be used" in text
    fitting = int(text.split("set buffer_size=")[1].split()[0])
    replay_memory.check_replay_fits(ReplayBuffer.predicted_bytes(replace(PONG, capacity=fitting)), fitting)


def test_the_size_of_a_large_buffer_is_told_and_that_of_a_small_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 20_000_000_000)
    replay_memory.check_replay_fits(ReplayBuffer.predicted_bytes(PONG), PONG.capacity)
    assert capsys.readouterr().err == "replay buffer of 1,000,000 steps: 7.44 GB of 20.0 GB available\n"
    replay_memory.check_replay_fits(10_000_000, 1000)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("shape", "dtype", "stack"), [((4, 3, 3), "float32", 4), ((4, 3, 3), "uint8", 3)])
def test_what_is_no_stack_of_frames_is_refused(shape: tuple[int, ...], dtype: str, stack: int) -> None:
    with pytest.raises(ValueError, match="uint8 images whose channels are a multiple of stack"):
        ReplayLayout(10, 1, shape, dtype, (), "int64", stack=stack)


@pytest.mark.parametrize("seed", range(12))
def test_segments_read_back_in_any_order_into_a_used_buffer_make_the_same_buffer(seed: int) -> None:
    """Games so short that frames run out before rows do: the oldest rows are lost between two exports."""
    screens = Screens(2, 4, seed, mean_length=4)
    live, _ = make_pair(64, n_step=2)
    pieces: list[tuple[int, dict[str, np.ndarray]]] = []
    start = 0
    for number in range(1, 132):
        live.add(*screens.step())
        if number % 10 == 0:
            start = max(start, live.oldest_row)
            pieces.append((start, live.export_rows(start, live.rows_written)))
            start = live.rows_written
    pieces.append((start, live.export_rows(start, live.rows_written)))
    rows_lost = live.rows_written - live.oldest_row - int(np.flatnonzero(live._rows["valid"].any(1)).size)
    assert rows_lost > 0, "no row has lost its frames: this test would prove nothing"
    used, _ = make_pair(64, n_step=2)
    other = Screens(2, 4, seed + 100, mean_length=2)
    for _ in range(200):
        used.add(*other.step())
    used.load_state_dict(live.state_dict())
    for first, rows in reversed(pieces):
        used.import_rows(first, rows)
    assert len(used) == len(live) > 0
    for _ in range(80):
        assert_same_batch(every_row(used), every_row(live))
        step = screens.step()
        used.add(*step)
        live.add(*step)
        assert len(used) == len(live)
