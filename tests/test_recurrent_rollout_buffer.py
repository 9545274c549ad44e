"""RecurrentRolloutBuffer: how a rollout is cut into sequences, what each one remembers, and how they are dealt out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recurrent_helpers import carried_rollout, recurrent_learner
from rl_training.data.recurrent_rollout_buffer import RecurrentRolloutBuffer
from rl_training.data.rollout import Rollout
from rl_training.errors import ConfigError

BOTH_MODES = pytest.mark.parametrize("next_step_resets", [False, True], ids=["same_step", "next_step"])


def plain_rollout(starts: Any, valid: Any = None, initial: float | None = None) -> Rollout:
    """[T, N] rows whose memory after step t of env e is 100 e + t + 1, and `initial` before the first."""
    episode_starts = np.array(starts, bool)
    num_steps, num_envs = episode_starts.shape
    zeros = np.zeros((num_steps, num_envs), np.float32)
    after = 100.0 * np.arange(num_envs) + np.arange(num_steps)[:, None] + 1
    return Rollout(
        obs=zeros[..., None],
        actions=zeros,
        rewards=zeros,
        terminated=zeros > 0,
        truncated=zeros > 0,
        valid=np.ones((num_steps, num_envs), bool) if valid is None else np.array(valid, bool),
        episode_starts=episode_starts,
        last_obs=zeros[0][:, None],
        final_steps=np.zeros(0, np.int64),
        final_envs=np.zeros(0, np.int64),
        final_obs=np.zeros((0, 1), np.float32),
        extras={"memory": after.astype(np.float32)[..., None, None]},
        initial_memory=None if initial is None else np.full((num_envs, 1, 1), initial, np.float32),
    )


def stored(rollout: Rollout, sequence_length: int) -> RecurrentRolloutBuffer:
    buffer = RecurrentRolloutBuffer(sequence_length)
    buffer.store(rollout)
    return buffer


def spans(buffer: RecurrentRolloutBuffer) -> list[tuple[int, int, int, float]]:
    """(env, first step, length, memory) of every sequence."""
    columns = (buffer.envs, buffer.steps, buffer.lengths, buffer.memory[:, 0, 0])
    return [tuple(column[i].item() for column in columns) for i in range(len(buffer))]  # type: ignore[misc]


def test_sequences_are_cut_at_episode_starts_and_after_their_full_length() -> None:
    starts = [[1], [0], [0], [0], [0], [1], [0], [0]]
    buffer = stored(plain_rollout(starts), 3)
    # Empty at the starts (rows 0 and 5), and at row 3 what was remembered after row 2.
    assert spans(buffer) == [(0, 0, 3, 0.0), (0, 3, 2, 3.0), (0, 5, 3, 0.0)]
    assert buffer.episode_starts.tolist() == [True, False, True]


def test_an_episode_that_goes_on_brings_its_memory_and_one_that_starts_does_not() -> None:
    buffer = stored(plain_rollout([[0, 1], [0, 0], [0, 0]], initial=7.0), 2)
    assert spans(buffer) == [(0, 0, 2, 7.0), (0, 2, 1, 2.0), (1, 0, 2, 0.0), (1, 2, 1, 102.0)]


def test_a_row_that_is_no_transition_belongs_to_no_sequence() -> None:
    # Next-step autoreset: the episode ends at row 1, row 2 is its reset, row 3 starts the next one.
    buffer = stored(plain_rollout([[1], [0], [0], [1], [0]], valid=[[1], [1], [0], [1], [1]]), 4)
    assert spans(buffer) == [(0, 0, 2, 0.0), (0, 3, 2, 0.0)]


def test_a_rollout_that_begins_with_a_reset_row_starts_after_it() -> None:
    buffer = stored(plain_rollout([[0], [1], [0]], valid=[[0], [1], [1]], initial=7.0), 4)
    assert spans(buffer) == [(0, 1, 2, 0.0)]


def test_what_follows_a_row_that_is_no_transition_is_another_sequence_start_or_not() -> None:
    buffer = stored(plain_rollout([[1], [0], [0], [0]], valid=[[1], [0], [1], [1]]), 4)
    assert spans(buffer) == [(0, 0, 1, 0.0), (0, 2, 2, 2.0)]


def test_without_a_memory_from_before_the_first_sequence_begins_with_none() -> None:
    assert spans(stored(plain_rollout([[0, 1], [0, 0]]), 4)) == [(0, 0, 2, 0.0), (1, 0, 2, 0.0)]


@BOTH_MODES
@pytest.mark.parametrize("sequence_length", [1, 3, 50])
def test_every_transition_is_in_one_sequence_of_one_env_and_one_episode(
    sequence_length: int, next_step_resets: bool
) -> None:
    rollout = carried_rollout(recurrent_learner(num_envs=3), 40, next_step_resets=next_step_resets)
    buffer = stored(rollout, sequence_length)
    episode = np.cumsum(rollout.episode_starts, 0)
    seen: list[int] = []
    for number in range(len(buffer)):
        rows, sequences = buffer.select(np.array([number]))
        steps, envs = np.divmod(rows.numpy(), 3)
        assert sequences.mask.all() and len(rows) <= sequence_length
        assert len(set(envs)) == 1 and np.array_equal(steps, np.arange(steps[0], steps[0] + len(steps)))
        assert len(set(episode[steps, envs])) == 1
        assert not rollout.episode_starts[steps[1:], envs[1:]].any(), "a start inside would need a reset"
        seen += rows.tolist()
    assert sorted(seen) == np.flatnonzero(rollout.valid).tolist()


@BOTH_MODES
def test_each_sequence_has_the_memory_the_policy_had_there(next_step_resets: bool) -> None:
    rollout = carried_rollout(recurrent_learner(num_envs=3), 40, next_step_resets=next_step_resets)
    buffer = stored(rollout, 3)
    before = np.concatenate([rollout.initial_memory[None], rollout.extras["memory"][:-1]])
    before = np.where(rollout.episode_starts[..., None, None], 0, before)
    np.testing.assert_array_equal(buffer.memory, before[buffer.steps, buffer.envs])
    assert (buffer.memory[buffer.episode_starts] == 0).all() and buffer.episode_starts.any()
    assert (buffer.memory[~buffer.episode_starts] != 0).any()


def test_the_rollout_itself_is_left_as_it_was() -> None:
    rollout = carried_rollout(recurrent_learner())
    memory, initial = rollout.extras["memory"].copy(), rollout.initial_memory.copy()
    stored(rollout, 4)
    np.testing.assert_array_equal(rollout.extras["memory"], memory)
    np.testing.assert_array_equal(rollout.initial_memory, initial)


def test_minibatches_are_whole_sequences_of_about_the_size_asked_for_and_an_epoch_has_each_once() -> None:
    rollout = carried_rollout(recurrent_learner(num_envs=4), 64)
    buffer, seen = stored(rollout, 8), []
    batches = list(buffer.minibatches(64, np.random.default_rng(0)))
    assert len(batches) == 4
    for rows, sequences in batches:
        assert 64 - 8 <= len(rows) <= 64 + 8
        assert len(rows) == int(sequences.mask.sum()) and sequences.memory.shape[0] == sequences.mask.shape[1]
        seen += rows.tolist()
    assert sorted(seen) == list(range(64 * 4))


def test_the_order_follows_from_the_generator_and_differs_between_epochs() -> None:
    buffer = stored(carried_rollout(recurrent_learner(num_envs=4), 64), 8)

    def order(rng: np.random.Generator) -> list[int]:
        return [row for rows, _ in buffer.minibatches(64, rng) for row in rows.tolist()]

    rng = np.random.default_rng(1)
    first, second = order(rng), order(rng)
    assert first == order(np.random.default_rng(1)) and first != second


def test_rows_and_places_of_a_minibatch_are_each_others_inverse() -> None:
    buffer = stored(carried_rollout(recurrent_learner(num_envs=3), 30), 5)
    _, sequences = buffer.select(np.arange(len(buffer)))
    assert not sequences.mask.all()
    np.testing.assert_array_equal(sequences.place.flatten()[sequences.rows], np.arange(len(sequences.rows)))
    # Padding is behind the end of a sequence, never before or inside it.
    assert not (sequences.mask[1:] & ~sequences.mask[:-1]).any()


@pytest.mark.parametrize("sequence_length", [0, -3])
def test_a_sequence_needs_a_step(sequence_length: int) -> None:
    with pytest.raises(ConfigError, match=f"sequence_length: {sequence_length} is not valid"):
        RecurrentRolloutBuffer(sequence_length)
