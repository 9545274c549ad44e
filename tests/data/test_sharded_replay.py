"""Shards that are sampled as one buffer: chances, n-step rows, priorities, state and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_helpers import DISCRETE
from rl_training.config.algorithms.apex_dqn import ApexDQNConfig
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_factory import make_sharded_replay
from rl_training.data.replay_layout import ReplayLayout
from rl_training.data.sharded_replay import ShardedReplay
from rl_training.errors import ConfigError

ENVS = 2


def buffer(capacity: int = 20, *, n_step: int = 1, prioritized: bool = False) -> ReplayBuffer:
    layout = ReplayLayout(capacity, ENVS, (1,), np.float32, (), np.int64)
    return ReplayBuffer(
        layout, gamma=0.5, n_step=n_step, prioritized=PriorityOptions(1.0, 0.5) if prioritized else None
    )


def fill(shard: ReplayBuffer, steps: int, first: float, valid: Any = None) -> None:
    """Rows whose observation, reward and next observation name them: first + step + 0.5 * env."""
    for step in range(steps):
        names = (first + step + 0.5 * np.arange(ENVS)).astype(np.float32)
        no = np.zeros(ENVS, bool)
        shard.add(names[:, None], np.zeros(ENVS, np.int64), names, names[:, None] + 1, no, no, valid)


def sharded(*sizes: int, **options: Any) -> ShardedReplay:
    """Shard k has rows from 100 * k on."""
    shards = [buffer(**options) for _ in sizes]
    for number, (shard, size) in enumerate(zip(shards, sizes, strict=True)):
        fill(shard, size, 100.0 * number)
    return ShardedReplay(shards)


def test_every_valid_row_has_the_same_chance_in_whichever_shard_it_is() -> None:
    replay = sharded(8, 2, 0)
    fill(replay.shards[0], 1, 50.0, valid=np.array([True, False]))
    assert len(replay) == 21
    drawn = replay.sample(42_000, np.random.default_rng(0)).obs[:, 0].numpy()
    names, counts = np.unique(drawn, return_counts=True)
    assert len(names) == 21 and 50.5 not in names
    np.testing.assert_allclose(counts, 2000, rtol=0.12)


def test_rows_are_drawn_in_proportion_to_their_priority_over_all_shards() -> None:
    replay = sharded(3, 1, 0, 2, prioritized=True)
    rng = np.random.default_rng(1)
    wanted = {}
    for number, shard in enumerate(replay.shards):
        if rows := shard.rows_written:
            indices = shard.newest_rows(rows).ravel()
            priorities = rng.random(len(indices)) * 4
            shard.update_priorities(indices, priorities)
            names = shard.rows(indices).obs[:, 0].tolist()
            wanted |= dict(zip(names, priorities + 0.5, strict=True))
            assert number != 2
    drawn = replay.sample(50_000, np.random.default_rng(2), 0.4)
    names, counts = np.unique(drawn.obs[:, 0].numpy(), return_counts=True)
    total = sum(wanted.values())
    assert set(names.tolist()) == set(wanted)
    np.testing.assert_allclose(counts / 50_000, [wanted[name] / total for name in names.tolist()], atol=2e-4)


def test_importance_weights_are_those_of_one_buffer() -> None:
    """(N P)^-beta over its maximum in the batch, with P over all shards."""
    replay = sharded(3, 2, prioritized=True)
    for number, shard in enumerate(replay.shards):
        indices = shard.newest_rows(shard.rows_written).ravel()
        shard.update_priorities(indices, 1.0 + indices + 10 * number)
    batch = replay.sample(64, np.random.default_rng(0), 0.6)
    assert batch.weights is not None and batch.indices is not None
    masses = [shard.priority_mass for shard in replay.shards]
    chances = []
    for index in batch.indices.tolist():
        number, row = divmod(index, 20)
        chances.append((1.0 + row + 10 * number + 0.5) / sum(masses))
    slow = np.array([(10 * chance) ** -0.6 for chance in chances])
    np.testing.assert_allclose(batch.weights, slow / slow.max(), rtol=1e-5)


def test_a_batch_belongs_to_its_indices_and_priorities_go_back_to_their_rows() -> None:
    replay = sharded(4, 4, 4, n_step=3, prioritized=True)
    batch = replay.sample(32, np.random.default_rng(3), 0.4)
    assert batch.indices is not None
    for place, index in enumerate(batch.indices.tolist()):
        number, row = divmod(index, 20)
        alone = replay.shards[number].rows(np.array([row]))
        for name in ("obs", "rewards", "discounts", "next_obs"):
            assert getattr(batch, name)[place] == getattr(alone, name)[0], name
    replay.update_priorities(batch.indices, np.arange(32.0))
    last = {index: place for place, index in enumerate(batch.indices.tolist())}
    for index in last:
        number, row = divmod(index, 20)
        tree = replay.shards[number]._tree
        assert tree is not None and tree.get(np.array([row]))[0] == last[index] + 0.5


def test_a_window_never_leaves_its_shard_and_cut_ends_the_windows_of_all() -> None:
    replay = sharded(4, 4, n_step=3)
    newest = replay.shards[0].newest_rows(1).ravel()
    assert replay.shards[0].rows(newest).rewards.tolist() == [3.0, 3.5]
    replay.cut()
    for shard, first in zip(replay.shards, (0.0, 100.0), strict=True):
        fill(shard, 1, first + 50)
        before = shard.newest_rows(2)[0]
        assert shard.rows(before).rewards.tolist() == [first + 3.0, first + 3.5]  # the cut row stands alone


def test_an_empty_replay_cannot_be_sampled() -> None:
    for prioritized in (False, True):
        with pytest.raises(ValueError, match="no transitions to sample"):
            sharded(0, 0, prioritized=prioritized).sample(4, np.random.default_rng(0), 0.4 if prioritized else None)


def test_a_restored_replay_draws_the_same_rows() -> None:
    replay = sharded(15, 4, n_step=2, prioritized=True)  # the first one has overwritten its oldest rows
    replay.update_priorities(np.array([3, 24]), np.array([7.0, 3.0]))
    copy = ShardedReplay([buffer(n_step=2, prioritized=True) for _ in range(2)])
    copy.load_state_dict(replay.state_dict())
    for old, new in zip(replay.shards, copy.shards, strict=True):
        new.import_rows(old.oldest_row, old.export_rows(old.oldest_row, old.rows_written))
    batches = [each.sample(16, np.random.default_rng(5), 0.5) for each in (replay, copy)]
    assert np.array_equal(*(batch.indices for batch in batches))  # type: ignore[arg-type]
    assert batches[0].rewards.tolist() == batches[1].rewards.tolist()
    with pytest.raises(ValueError, match="it has 2 shards, not 3"):
        ShardedReplay([buffer() for _ in range(3)]).load_state_dict(replay.state_dict())


def test_the_memory_of_all_shards_is_predicted_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ApexDQNConfig(buffer_size=1000)
    asked: list[int] = []
    monkeypatch.setattr("rl_training.data.replay_factory.check_replay_fits", lambda needed, size: asked.append(needed))
    replay = make_sharded_replay(DISCRETE, settings, 8, 4, {})
    assert asked == [replay.nbytes]
    assert [shard.capacity for shard in replay.shards] == [250 // 2 * 2] * 4
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"algo_kwargs.buffer_size: the replay buffer needs"):
        make_sharded_replay(DISCRETE, ApexDQNConfig(buffer_size=10**13), 8, 4, {})
