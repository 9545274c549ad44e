"""The parts of the collector on their own: boundaries of each autoreset mode, running returns, rows of a rollout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from collector_helpers import Scripted, collector_of
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.runtime.collection.boundaries import NextStepBoundaries, SameStepBoundaries, boundaries_for
from rl_training.runtime.collection.rollout_writer import RolloutWriter
from rl_training.runtime.collection.steps import Episode, EpisodeStatistics, Step

NONE, FIRST, SECOND = np.array([False, False]), np.array([True, False]), np.array([False, True])
OBS = np.array([[1.0], [2.0]], np.float32)


def boundaries(mode: AutoresetMode) -> Any:
    envs = Scripted(mode)
    return boundaries_for(mode, envs, Spaces(envs.single_observation_space, envs.single_action_space))


def test_each_autoreset_mode_has_its_class() -> None:
    assert isinstance(boundaries(AutoresetMode.SAME_STEP), SameStepBoundaries)
    assert isinstance(boundaries(AutoresetMode.NEXT_STEP), NextStepBoundaries)


def test_same_step_replaces_the_successor_of_the_rows_that_ended_and_keeps_every_row() -> None:
    same = boundaries(AutoresetMode.SAME_STEP)
    next_obs, valid, starts = same.resolve(OBS, NONE, 0, {})
    assert next_obs is OBS and valid.all() and not starts.any()
    next_obs, valid, starts = same.resolve(OBS, SECOND, 1, {"final_obs": np.array([[8.0], [9.0]], np.float32)})
    np.testing.assert_array_equal(next_obs, [[1.0], [9.0]])
    np.testing.assert_array_equal(OBS, [[1.0], [2.0]])
    assert valid.all() and starts.tolist() == [False, True] and same.skipped_rows == 0


def test_same_step_takes_final_observations_as_a_list_of_samples() -> None:
    finals = np.array([None, np.array([9.0], np.float32)], object)
    next_obs, _, _ = boundaries(AutoresetMode.SAME_STEP).resolve(OBS, SECOND, 1, {"final_obs": finals})
    np.testing.assert_array_equal(next_obs, [[1.0], [9.0]])


def test_same_step_without_final_observations_names_the_vector_env() -> None:
    with pytest.raises(EnvError, match=r"vector env Scripted ended an episode without infos\['final_obs'\]"):
        boundaries(AutoresetMode.SAME_STEP).resolve(OBS, FIRST, 1, {})


def test_next_step_skips_the_row_after_an_end_and_counts_it() -> None:
    following = boundaries(AutoresetMode.NEXT_STEP)
    masks = []
    for done in (FIRST, NONE, NONE):
        next_obs, valid, starts = following.resolve(OBS, done, int(done.sum()), {})
        assert next_obs is OBS
        masks.append((valid.tolist(), starts.tolist()))
    assert masks == [
        ([True, True], [False, False]),
        ([False, True], [True, False]),
        ([True, True], [False, False]),
    ]
    assert following.skipped_rows == 1


def test_next_step_forgets_a_pending_reset_when_all_envs_are_reset() -> None:
    following = boundaries(AutoresetMode.NEXT_STEP)
    following.resolve(OBS, FIRST, 1, {})
    following.reset()
    assert following.skipped_rows == 0
    assert following.resolve(OBS, NONE, 0, {})[1].all()


def test_statistics_leave_out_invalid_rows_and_start_again_after_an_end() -> None:
    every = np.ones(2, bool)
    statistics = EpisodeStatistics(every)
    statistics.add(np.array([1.0, 2.0], np.float32), every)
    statistics.add(np.array([4.0, 8.0], np.float32), FIRST)
    assert statistics.finish(np.array([True, True]), SECOND) == [Episode(2.0, 1)]
    statistics.add(np.array([16.0, 32.0], np.float32), every)
    assert statistics.finish(FIRST, every) == [Episode(16.0, 1)]
    statistics.clear(SECOND)
    statistics.add(np.array([0.0, 64.0], np.float32), every)
    assert statistics.finish(SECOND, every) == [Episode(64.0, 1)]


def step_with(number: float, **changes: Any) -> Step:
    row = np.full(2, number, np.float32)
    fields: dict[str, Any] = {
        "obs": row[:, None],
        "actions": np.zeros(2, np.int64),
        "rewards": row,
        "next_obs": row[:, None] + 1,
        "terminated": NONE,
        "truncated": NONE,
        "valid": ~NONE,
        "episode_starts": NONE,
        "extras": {"values": row * 10},
        "memory": None,
    }
    return Step(**fields | changes)


def test_a_shorter_rollout_uses_the_same_arrays_and_a_longer_one_gets_larger_ones() -> None:
    writer = RolloutWriter()
    rollouts = []
    for num_steps in (3, 2, 4):
        writer.start(num_steps, f"memory before {num_steps}")
        for number in range(num_steps):
            writer.add(step_with(number))
        rollouts.append(writer.finish(OBS))
        np.testing.assert_array_equal(rollouts[-1].rewards[:, 0], np.arange(num_steps))
        np.testing.assert_array_equal(rollouts[-1].extras["values"][:, 1], 10 * np.arange(num_steps))
        assert rollouts[-1].initial_memory == f"memory before {num_steps}"
        assert rollouts[-1].final_obs.shape == (0, 1)
    assert np.shares_memory(rollouts[0].obs, rollouts[1].obs)
    assert not np.shares_memory(rollouts[0].obs, rollouts[2].obs)


def test_a_broken_env_ends_its_row_before_unless_that_row_already_ended() -> None:
    for before, expected in ((NONE, [(0, 1)]), (SECOND, [])):
        writer = RolloutWriter()
        writer.start(2, None)
        writer.add(step_with(3, terminated=before))
        writer.add(step_with(4, valid=FIRST, broken=SECOND))
        rollout = writer.finish(OBS)
        assert list(zip(rollout.final_steps, rollout.final_envs, strict=True)) == expected
        assert rollout.truncated[0].tolist() == [False, bool(expected)]
        assert rollout.final_obs.tolist() == [[4.0]] * len(expected)


def test_a_broken_env_does_not_end_a_row_that_is_not_a_transition() -> None:
    writer = RolloutWriter()
    writer.start(2, None)
    writer.add(step_with(3, valid=FIRST))
    writer.add(step_with(4, valid=FIRST, broken=SECOND))
    rollout = writer.finish(OBS)
    assert not rollout.truncated.any() and len(rollout.final_obs) == 0


def test_only_transitions_have_a_final_observation() -> None:
    writer = RolloutWriter()
    writer.start(1, None)
    writer.add(step_with(3, truncated=~NONE, valid=FIRST, episodes=[Episode(1.0, 1)]))
    rollout = writer.finish(OBS)
    assert (rollout.final_steps.tolist(), rollout.final_envs.tolist()) == ([0], [0])
    assert rollout.final_obs.tolist() == [[4.0]]


def test_a_vector_env_that_replaces_nothing_has_no_failures() -> None:
    collector, _ = collector_of(Scripted())
    assert collector.failures == []
