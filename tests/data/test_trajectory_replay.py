"""TrajectoryReplay: how trajectories are cut into windows, what a window holds, and what survives a ring and a save."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.config.algorithms.r2d2 import R2D2Config
from rl_training.data import replay_memory
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.recurrent_rollout_buffer import RecurrentRolloutBuffer
from rl_training.data.replay_factory import make_replay
from rl_training.data.replay_layout import ReplayLayout
from rl_training.data.rollout import Rollout
from rl_training.data.trajectory_replay import MEMORY, TrajectoryReplay, WindowOptions, Windows, window_priorities
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError

GAMMA = 0.9


class Stream:
    """Vector steps whose numbers say where they belong: obs = (env, episode, time), memory = 1000 env + step."""

    def __init__(self, num_envs: int, seed: int, *, resets: bool = False):
        self.rng, self.num_envs, self.resets = np.random.default_rng(seed), num_envs, resets
        self.episode, self.time, self.step = np.zeros(num_envs, int), np.zeros(num_envs, int), 0
        self.resetting = np.zeros(num_envs, bool)
        self.starts: list[np.ndarray] = []
        self.valid: list[np.ndarray] = []

    def _obs(self, time: np.ndarray) -> np.ndarray:
        return np.stack([np.arange(self.num_envs), self.episode, time], 1).astype(np.float32)

    def feed(self, buffer: TrajectoryReplay, steps: int) -> None:
        for _ in range(steps):
            valid = ~self.resetting
            ends = valid & (self.rng.random(self.num_envs) < 0.15)
            terminated = ends & (self.rng.random(self.num_envs) < 0.5)
            self.starts.append((self.time == 0) & valid)
            self.valid.append(valid)
            memory = (1000.0 * np.arange(self.num_envs) + self.step)[:, None, None].astype(np.float32)
            buffer.add(
                self._obs(self.time),
                self.time.copy(),
                self.time.astype(np.float32) + 1,
                self._obs(self.time + 1),
                terminated,
                ends & ~terminated,
                valid,
                {MEMORY: memory, "probs": np.repeat(self.time[:, None], 2, 1).astype(np.float32)},
            )
            self.step += 1
            self.time = np.where(valid, self.time + 1, self.time)
            over = ends | self.resetting
            self.time[over] = 0
            self.episode[ends] += 1
            self.resetting = ends & self.resets

    def restart(self) -> None:
        """What a checkpoint does to the envs."""
        self.time[:] = 0
        self.episode += 1
        self.resetting[:] = False


def layout(num_envs: int = 3, capacity: int = 600) -> ReplayLayout:
    plain = ReplayLayout(capacity, num_envs, (3,), np.float32, (), np.int64)
    columns: Any = {MEMORY: ((1, 1), np.dtype(np.float32)), "probs": ((2,), np.dtype(np.float32))}
    return TrajectoryReplay.layout_with(plain, columns)


def replay(steps: int = 4, burn_in: int = 3, *, prioritized: bool = False, **shape: int) -> TrajectoryReplay:
    options = PriorityOptions() if prioritized else None
    return TrajectoryReplay(layout(**shape), WindowOptions(steps, burn_in), gamma=GAMMA, prioritized=options)


def all_windows(buffer: TrajectoryReplay) -> Windows:
    return buffer.windows(np.flatnonzero(buffer._flat["complete"]))


def check_windows(windows: Windows, most: int) -> list[tuple[int, int, int, int]]:
    """That every window is one piece of one episode; returns (env, episode, first time, length) of each."""
    found = []
    start = windows.burn_steps
    for s in range(len(windows)):
        length, burn = int(windows.lengths[s]), int(windows.burn_in[s])
        obs = windows.obs[start - burn : start + length + 1, s].numpy()
        assert 1 <= length <= most and len(set(obs[:, 0])) == 1 and len(set(obs[:, 1])) == 1
        first = int(obs[burn, 2])
        np.testing.assert_array_equal(obs[:, 2], np.arange(first - burn, first + length + 1))
        assert windows.actions[:length, s].tolist() == list(range(first, first + length))
        assert windows.rewards[:length, s].tolist() == [time + 1 for time in range(first, first + length)]
        assert windows.extras["probs"][:length, s, 0].tolist() == list(range(first, first + length))
        assert windows.mask[:, s].tolist() == [time < length for time in range(len(windows.mask))]
        assert not windows.rewards[length:, s].any()
        found.append((int(obs[0, 0]), int(obs[0, 1]), first, length))
    return found


@pytest.mark.parametrize("resets", [False, True], ids=["same_step", "next_step"])
@pytest.mark.parametrize("steps", [1, 4])
def test_trajectories_are_cut_as_recurrent_rollouts_are(resets: bool, steps: int) -> None:
    stream, buffer = Stream(3, seed=1, resets=resets), replay(steps, 0)
    stream.feed(buffer, 60)
    buffer.cut()
    windows = all_windows(buffer)
    check_windows(windows, steps)
    zeros = np.zeros((60, 3), np.float32)
    rollout = Rollout(
        **dict.fromkeys(("terminated", "truncated"), zeros > 0),
        obs=zeros,
        actions=zeros,
        rewards=zeros,
        valid=np.array(stream.valid),
        episode_starts=np.array(stream.starts),
        last_obs=zeros[0],
        final_steps=np.zeros(0, int),
        final_envs=np.zeros(0, int),
        final_obs=zeros[:0],
        # The memory AFTER a step is that before the next one.
        extras={"memory": (1000.0 * np.arange(3) + np.arange(1, 61)[:, None])[..., None, None].astype(np.float32)},
    )
    rule = RecurrentRolloutBuffer(steps)
    rule.store(rollout)
    assert windows.indices is not None and windows.memory is not None
    slots, envs = np.divmod(windows.indices, 3)
    mine = zip(envs, slots, windows.lengths.tolist(), windows.memory[:, 0, 0].tolist(), strict=True)
    theirs = zip(rule.envs, rule.steps, rule.lengths, rule.memory[:, 0, 0], strict=True)
    assert sorted(mine) == sorted(theirs)


@pytest.mark.parametrize("resets", [False, True], ids=["same_step", "next_step"])
def test_a_burn_in_is_the_end_of_what_came_before_in_the_same_episode(resets: bool) -> None:
    stream, buffer = Stream(3, seed=2, resets=resets), replay(4, 6)
    stream.feed(buffer, 100)
    windows = all_windows(buffer)
    pieces = check_windows(windows, 4)
    assert windows.burn_in.tolist() == [min(6, first) for _, _, first, _ in pieces]
    assert {0, 4, 6} == set(windows.burn_in.tolist())
    for s, (env, _, first, _) in enumerate(pieces):
        assert windows.indices is not None and windows.memory is not None
        burn = int(windows.burn_in[s])
        remembered = float(windows.memory[s, 0, 0])
        step = windows.indices[s] // 3 - burn
        assert remembered == (0.0 if first == burn else 1000 * env + step), "memory where the burn-in begins"


def test_termination_alone_takes_the_discount() -> None:
    stream, buffer = Stream(3, seed=3), replay()
    stream.feed(buffer, 80)
    windows = all_windows(buffer)
    assert windows.indices is not None
    rows = np.minimum(windows.lengths.numpy() - 1, 3) * 3 + windows.indices
    last = windows.discounts[windows.lengths - 1, torch.arange(len(windows))].numpy()
    terminated, truncated = buffer._flat["terminated"][rows], buffer._flat["truncated"][rows]
    assert terminated.any() and truncated.any()
    np.testing.assert_allclose(last, np.where(terminated, 0.0, GAMMA))


def test_a_window_is_sampled_only_when_it_cannot_grow() -> None:
    buffer, stream = replay(4, 0, num_envs=1), Stream(1, seed=0)
    stream.rng = np.random.default_rng(0)
    zeros = np.zeros(1, bool)

    def add(time: int, ends: bool = False, valid: bool = True) -> int:
        obs = np.array([[0, 0, time]], np.float32)
        buffer.add(obs, np.array([time]), np.ones(1, np.float32), obs + 1, zeros, zeros | ends, zeros | valid)
        return len(buffer)

    assert [add(time) for time in range(6)] == [0, 0, 0, 1, 1, 1]
    buffer.cut()
    assert len(buffer) == 2 and all_windows(buffer).lengths.tolist() == [4, 2]
    assert [add(0), add(1, ends=True)] == [2, 3]
    assert [add(0), add(0, valid=False), add(0)] == [3, 4, 4]
    with pytest.raises(ValueError, match="no complete window"):
        replay().sample(2, np.random.default_rng(0))


@pytest.mark.parametrize("prioritized", [False, True])
def test_windows_of_a_ring_that_overflows_are_whole(prioritized: bool) -> None:
    stream, buffer = Stream(3, seed=4, resets=True), replay(4, 6, prioritized=prioritized, capacity=60)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(12):
        stream.feed(buffer, 7)
        windows = buffer.sample(40, rng, 0.5 if prioritized else None)
        pieces = check_windows(windows, 4)
        seen |= {(piece, int(burn)) for piece, burn in zip(pieces, windows.burn_in, strict=True)}
        oldest = {env: min(piece[1:3] for piece in pieces if piece[0] == env) for env in range(3)}
        if prioritized:
            assert windows.indices is not None
            buffer.update_priorities(windows.indices, rng.random(len(windows)))
        assert len(buffer) == len(all_windows(buffer).indices)  # type: ignore[arg-type]
    # The ring has forgotten a part of what came before some windows: their burn-in is shorter, not of another episode.
    assert any(burn < min(6, first) for (_, _, first, _), burn in seen)
    assert oldest


def test_a_priority_is_nine_tenths_of_the_largest_error_and_a_tenth_of_the_mean() -> None:
    errors = np.array([[0.0, -2.0], [1.0, 9.0]])
    mask = np.array([[True, True], [True, False]])
    np.testing.assert_allclose(window_priorities(errors, mask), [0.95, 2.0])


def test_priorities_belong_to_windows_and_new_ones_come_first() -> None:
    stream, buffer = Stream(2, seed=5), replay(3, 0, prioritized=True, num_envs=2)
    stream.feed(buffer, 30)
    starts = np.flatnonzero(buffer._flat["complete"])
    buffer.update_priorities(starts, np.where(np.arange(len(starts)) == 2, 3.0, 0.0))
    windows = buffer.sample(64, np.random.default_rng(0), 0.5)
    assert windows.indices is not None and windows.weights is not None
    assert np.mean(windows.indices == starts[2]) > 0.95
    assert windows.weights.shape == (64,) and float(windows.weights.max()) == 1.0
    stream.feed(buffer, 6)
    new = set(np.flatnonzero(buffer._flat["complete"])) - set(starts)
    assert new and new <= set(buffer.sample(64, np.random.default_rng(1), 0.5).indices)  # type: ignore[arg-type]
    assert buffer._tree is not None
    np.testing.assert_allclose(buffer._tree.get(np.array(sorted(new))), (3.0 + 1e-6) ** 0.6)  # the highest so far
    # Uniform sampling reaches every window.
    uniform = replay(3, 0, num_envs=2)
    Stream(2, seed=5).feed(uniform, 30)
    drawn = uniform.sample(500, np.random.default_rng(2)).indices
    assert set(drawn) == set(starts)  # type: ignore[arg-type]


def test_a_priority_of_a_window_that_was_overwritten_is_dropped() -> None:
    stream, buffer = Stream(3, seed=6), replay(4, 0, prioritized=True, capacity=60)
    stream.feed(buffer, 20)
    sampled = buffer.sample(30, np.random.default_rng(0), 0.5)
    stream.feed(buffer, 10)
    assert sampled.indices is not None
    buffer.update_priorities(sampled.indices, np.full(30, 5.0))
    assert buffer._tree is not None
    held = buffer._tree.get(np.arange(buffer.capacity)) > 0
    np.testing.assert_array_equal(held, buffer._flat["complete"])


@pytest.mark.parametrize("steps", [9, 16])
def test_the_newest_steps_are_all_there_once(steps: int) -> None:
    stream, buffer = Stream(3, seed=7, resets=True), replay(4, 3)
    stream.feed(buffer, 40)
    windows = buffer.newest(steps)
    pieces = check_windows(windows, steps)
    assert int(windows.mask.sum()) == int(np.sum(stream.valid[-steps:])) == sum(piece[3] for piece in pieces)
    assert not windows.burn_steps and len(set(pieces)) == len(pieces)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_restored_replay_samples_and_grows_like_the_one_that_was_saved(prioritized: bool) -> None:
    stream, buffer = Stream(3, seed=8), replay(4, 3, prioritized=prioritized, capacity=120)
    stream.feed(buffer, 25)
    buffer.cut()
    parts = [(0, buffer.export_rows(0, 25))]
    stream.restart()
    stream.feed(buffer, 30)
    buffer.cut()
    parts.append((25, buffer.export_rows(25, 55)))
    if prioritized:
        windows = buffer.sample(9, np.random.default_rng(1), 0.5)
        assert windows.indices is not None
        buffer.update_priorities(windows.indices, np.arange(9.0))
    other = replay(4, 3, prioritized=prioritized, capacity=120)
    Stream(3, seed=1).feed(other, 30)  # what it holds, open windows too, is forgotten
    other.load_state_dict(buffer.state_dict())
    for start, rows in parts:
        other.import_rows(start, rows)
    other.cut()  # as a save that follows at once does
    assert len(other) == len(buffer)
    stream.restart()
    twin = Stream(3, seed=8)
    twin.__dict__ |= {**stream.__dict__, "rng": np.random.default_rng(9), "time": stream.time.copy()}
    twin.episode, twin.resetting = stream.episode.copy(), stream.resetting.copy()
    stream.rng = np.random.default_rng(9)
    for _ in range(3):
        both = [each.sample(20, np.random.default_rng(3), 0.5 if prioritized else None) for each in (buffer, other)]
        for name in ("obs", "actions", "rewards", "discounts", "mask", "burn_in", "memory"):
            assert torch.equal(getattr(both[0], name), getattr(both[1], name)), name
        np.testing.assert_array_equal(both[0].indices, both[1].indices)
        stream.feed(buffer, 11)
        twin.feed(other, 11)
    with pytest.raises(ValueError, match="window_steps"):
        replay(5, 3, prioritized=prioritized, capacity=120).load_state_dict(buffer.state_dict())


def settings(**changes: Any) -> R2D2Config:
    return R2D2Config(**{"buffer_size": 64, "sequence_length": 7, "burn_in": 3, **changes})


def test_images_come_out_as_they_went_in() -> None:
    space = gym.spaces.Box(0, 255, (2, 4, 4), np.uint8)
    buffer = make_replay(
        Spaces(space, gym.spaces.Discrete(2)), settings(), 2, {"image": {"stack": 2}}, None, memory_shape=(2, 5)
    )
    assert isinstance(buffer, TrajectoryReplay) and buffer.layout.stack == 2
    rng, shown = np.random.default_rng(0), []
    frames = rng.integers(0, 256, (2, 1, 4, 4), np.uint8)
    obs = np.concatenate([frames, frames], 1)
    zeros = np.zeros(2, bool)
    for time in range(20):
        following = np.concatenate([obs[:, 1:], rng.integers(0, 256, (2, 1, 4, 4), np.uint8)], 1)
        shown.append(obs)
        buffer.add(obs, np.zeros(2, int), np.zeros(2, np.float32), following, zeros, zeros | (time == 12))
        obs = following
    shown.append(obs)
    windows = all_windows(buffer)
    assert windows.indices is not None and windows.obs.dtype == torch.uint8
    for s, (row, env) in enumerate(zip(*np.divmod(windows.indices, 2), strict=True)):
        length, burn = int(windows.lengths[s]), int(windows.burn_in[s])
        mine = windows.obs[windows.burn_steps - burn : windows.burn_steps + length + 1, s].numpy()
        np.testing.assert_array_equal(mine, [shown[t][env] for t in range(row - burn, row + length + 1)])


@pytest.mark.parametrize("prioritized", [False, True])
def test_memory_is_predicted_with_the_states_it_keeps(prioritized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))
    buffer = make_replay(spaces, settings(prioritized=prioritized), 2, {}, None, memory_shape=(2, 100))
    assert buffer.nbytes == TrajectoryReplay.predicted_bytes(buffer.layout, prioritized=prioritized)
    assert buffer.nbytes > 64 * 2 * 100 * 4
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 10**9)
    with pytest.raises(ConfigError, match=r"algo_kwargs\.buffer_size: .* set buffer_size=\d+ or less"):
        make_replay(spaces, settings(buffer_size=10**7), 2, {}, None, memory_shape=(2, 100))


@pytest.mark.parametrize("window", [(0, 0), (3, -1)])
def test_a_window_without_steps_is_refused(window: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="a window needs"):
        WindowOptions(*window)
