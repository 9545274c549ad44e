"""Hindsight replay: goals of the same episode at or after the step, rewards and ends of all rows of a window."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.data import goal_replay
from rl_training.data.goal_replay import GoalReplay, Hindsight
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_layout import ReplayLayout
from rl_training.envs.goals import GoalColumns, GoalRules
from rl_training.envs.spaces import Spaces
from rl_training.envs.task_probes import BitFlipProbe, PointGoalProbe
from rl_training.errors import EnvError

GAMMA = 0.9


class Line(gym.Env[Any, Any]):
    """The achieved goal is the number of the row. Reaching a goal pays 10 and ends the episode, else -distance."""

    observation_space = gym.spaces.Dict(
        {name: gym.spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in ("achieved_goal", "desired_goal", "seen")}
    )
    action_space = gym.spaces.Discrete(2)

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        distance = np.abs(achieved - desired)[..., 0]
        return np.where(distance == 0, 10.0, -distance)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (achieved == desired)[..., 0]


SPACES = Spaces(Line.observation_space, Line.action_space)
COLUMNS = GoalColumns.of(SPACES)


def buffer_of(slots: int, num_envs: int = 1, *, share: float = 1.0, n_step: int = 1, **options: Any) -> GoalReplay:
    layout = ReplayLayout(slots * num_envs, num_envs, (3,), "float32", (), "int64")
    hindsight = Hindsight(share, COLUMNS, GoalRules(Line(), COLUMNS), **options.pop("hindsight", {}))
    return GoalReplay(layout, hindsight, gamma=GAMMA, n_step=n_step, **options)


def fill(
    buffer: GoalReplay, rows: range, ends: dict[int, str], invalid: tuple[int, ...] = (), scale: float = 1.0
) -> None:
    """Row r goes from r to r + 0.5 in `seen` and achieves the goal r; env e adds 1000 e. The wish is goal -7.

    Before the step, the goal r - 0.5 was achieved, which no reward depends on.
    """
    offset = 1000.0 * np.arange(buffer.num_envs)
    for row in rows:

        def seen(shown: float, row: int = row) -> np.ndarray:
            achieved = row - (0.5 if shown == row else 0.0)
            columns = {"achieved_goal": achieved + offset, "desired_goal": offset * 0 - 7, "seen": shown + offset}
            return np.stack([columns[key] for key in ("achieved_goal", "desired_goal", "seen")], 1).astype(np.float32)

        ones = np.ones(buffer.num_envs, bool)
        rewards = -scale * (row + offset + 7).astype(np.float32)
        buffer.add(
            seen(row),
            np.zeros(buffer.num_envs, np.int64),
            rewards,
            seen(row + 0.5),
            ones & (ends.get(row) == "terminated"),
            ones & (ends.get(row) == "truncated"),
            ones & (row not in invalid),
        )


def test_the_columns_are_those_of_the_goals() -> None:
    assert (COLUMNS.achieved, COLUMNS.desired) == (slice(0, 1), slice(1, 2))


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("num_envs", [1, 2])
def test_goals_come_from_the_same_episode_at_or_after_the_step(num_envs: int, reload: bool) -> None:
    buffer = buffer_of(12, num_envs)
    # 30 rows in a ring of 12: episodes 0-4, 5-9, 10-13, (14 is a reset), 15-21, 22-27, and 28-29 goes on.
    ends = {4: "truncated", 9: "terminated", 13: "truncated", 21: "terminated"}
    fill(buffer, range(28), ends, invalid=(14,))
    buffer.cut()
    fill(buffer, range(28, 30), ends)
    if reload:
        buffer = reloaded(buffer)
    last_of = {row: 21 if row <= 21 else 27 if row <= 27 else 29 for row in range(18, 30)}
    batch = buffer.sample(4000, np.random.default_rng(0))
    rows, goals = batch.obs[:, 2].numpy(), batch.obs[:, 1].numpy()
    envs = rows // 1000
    np.testing.assert_array_equal(goals // 1000, envs)
    found: dict[int, set[int]] = {}
    for row, goal in zip(rows % 1000, goals % 1000, strict=True):
        found.setdefault(int(row), set()).add(int(goal))
    assert found == {row: set(range(row, last + 1)) for row, last in last_of.items()}
    np.testing.assert_array_equal(batch.next_obs[:, 1], goals)
    # The reward is that of the goal which the step led to, and reaching it is the end.
    distance = goals - rows
    np.testing.assert_allclose(batch.rewards, np.where(distance == 0, 10.0, -distance))
    np.testing.assert_allclose(batch.discounts, np.where(distance == 0, 0.0, GAMMA), rtol=1e-6)


def reloaded(buffer: GoalReplay) -> GoalReplay:
    again = buffer_of(buffer.slots, buffer.num_envs, share=buffer.hindsight.share, n_step=buffer.n_step)
    again.load_state_dict(buffer.state_dict())
    half = (buffer.oldest_row + buffer.rows_written) // 2
    for start, stop in ((buffer.oldest_row, half), (half, buffer.rows_written)):
        again.import_rows(start, buffer.export_rows(start, stop))
    return again


def test_ends_after_a_load_are_those_from_before() -> None:
    rng = np.random.default_rng(3)
    for trial in range(20):
        buffer = buffer_of(int(rng.integers(3, 15)), 2)
        count = int(rng.integers(1, 40))
        ends = {row: ("terminated", "truncated")[row % 2] for row in range(count) if rng.random() < 0.25}
        invalid = tuple(row for row in range(count) if rng.random() < 0.1)
        fill(buffer, range(count), ends, invalid)
        again = reloaded(buffer)
        stored = np.arange(buffer.oldest_row, count) % buffer.slots
        valid = buffer._rows["valid"][stored]
        np.testing.assert_array_equal(
            buffer._known_ends()[stored][valid], again._known_ends()[stored][valid], err_msg=str(trial)
        )
        fill(buffer, range(count, count + 9), {count + 4: "truncated"})
        fill(again, range(count, count + 9), {count + 4: "truncated"})
        if len(buffer):
            for key in ("obs", "rewards", "discounts", "next_obs"):
                left, right = (getattr(b.sample(64, np.random.default_rng(1)), key) for b in (buffer, again))
                assert left.equal(right)


def test_a_window_relabels_all_its_rewards_and_stops_at_the_new_goal() -> None:
    buffer = buffer_of(20, n_step=3)
    fill(buffer, range(10), {5: "terminated", 9: "truncated"})
    batch = buffer.sample(3000, np.random.default_rng(0))
    rows, goals = batch.obs[:, 2].numpy().astype(int), batch.obs[:, 1].numpy().astype(int)
    for row, goal, reward, discount, following in zip(
        rows, goals, batch.rewards, batch.discounts, batch.next_obs[:, 2], strict=True
    ):
        end = 5 if row <= 5 else 9
        expected, steps = 0.0, 0
        for number in range(row, min(row + 3, end + 1)):
            expected += GAMMA**steps * (
                10.0 if number == goal else -(goal - number if goal > number else number - goal)
            )
            steps += 1
            if number == goal:
                break
        assert float(reward) == pytest.approx(expected, rel=1e-5)
        # Row 5 terminated with the old goal. With another one its state is a state like any other.
        assert float(discount) == pytest.approx(0.0 if number == goal else GAMMA**steps, rel=1e-5)
        assert float(following) == number + 0.5


def test_rows_that_keep_their_goal_keep_everything() -> None:
    buffer, plain = buffer_of(20, share=0.0, n_step=2), buffer_of(20, share=0.5, n_step=2)
    for each in (buffer, plain):
        fill(each, range(10), {5: "terminated"})
    batch = buffer.sample(500, np.random.default_rng(0))
    assert (batch.obs[:, 1] == -7).all()
    terminal = batch.obs[:, 2] == 5
    np.testing.assert_allclose(batch.rewards[terminal], -12.0)
    np.testing.assert_allclose(batch.discounts[terminal], 0.0)
    share = float((plain.sample(4000, np.random.default_rng(0)).obs[:, 1] != -7).float().mean())
    assert share == pytest.approx(0.5, abs=0.03)


def test_priorities_and_shaped_rewards_work_with_goals() -> None:
    def scaled(rewards: np.ndarray) -> np.ndarray:
        return rewards * np.float32(0.5)

    buffer = buffer_of(20, prioritized=PriorityOptions(), hindsight={"shape_rewards": scaled})
    with pytest.raises(EnvError, match=r"compute_reward says -3\.5 where the env gave -7"):
        fill(buffer, range(1), {})  # its rewards are not scaled
    buffer = buffer_of(20, prioritized=PriorityOptions(), hindsight={"shape_rewards": scaled})
    fill(buffer, range(10), {}, scale=0.5)
    batch = buffer.sample(64, np.random.default_rng(0), 0.5)
    assert batch.weights is not None and batch.indices is not None
    distance = batch.obs[:, 1] - batch.obs[:, 2].floor()
    assert len(distance.unique()) > 3
    np.testing.assert_allclose(batch.rewards, np.where(distance == 0, 5.0, -0.5 * distance))
    buffer.update_priorities(batch.indices, np.ones(64))


@pytest.mark.parametrize("probe", [BitFlipProbe(4), PointGoalProbe()])
def test_the_rules_of_the_probes_pass_the_check(probe: Any) -> None:
    spaces = Spaces(probe.observation_space, probe.action_space)
    columns = GoalColumns.of(spaces)
    rules = GoalRules(probe, columns)
    observation, _ = probe.reset(seed=0)
    for _ in range(30):
        observation, reward, terminated, truncated, info = probe.step(probe.action_space.sample())
        row = spaces.encode_one(observation)[None]
        achieved, desired = row[:, columns.achieved], row[:, columns.desired]
        rules.check(achieved, desired)
        rules.check_outcome(
            achieved, desired, rules.rewards(achieved, desired), np.array([reward]), np.array([terminated])
        )
        assert info["is_success"] == (reward == 0)
        if terminated or truncated:
            probe.reset()


class NoReward(gym.Env[Any, Any]):
    observation_space, action_space = Line.observation_space, Line.action_space


class OneAtATime(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -float(np.abs(achieved - desired).sum())


class Forgetful(Line):
    count = 0

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        self.count += 1
        return np.full(len(achieved), float(self.count))


class Mean(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        distance = np.abs(achieved - desired)[..., 0]
        return -distance + distance.mean()


class Raises(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return info["distance"]


class EarlyEnd(Line):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.ones(len(achieved), bool)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (NoReward, "NoReward has none: add it, or set algo_kwargs.hindsight=0"),
        (OneAtATime, r"returned shape \(\) for 2 goals"),
        (Forgetful, "not pure"),
        (Mean, "in a batch than alone"),
        (Raises, "compute_reward failed for 2 goals: KeyError"),
        (EarlyEnd, "compute_terminated ends an episode that the env continued"),
    ],
)
def test_rules_that_cannot_be_used_are_refused_in_one_line(env: Any, words: str) -> None:
    with pytest.raises(EnvError, match=words) as refusal:
        layout = ReplayLayout(8, 1, (3,), "float32", (), "int64")
        rules = GoalRules(env(), COLUMNS)
        fill(GoalReplay(layout, Hindsight(0.5, COLUMNS, rules), gamma=GAMMA), range(2), {})
    assert "\n" not in str(refusal.value)


def test_rules_for_one_goal_at_a_time_may_say_where_episodes_end() -> None:
    class Scalar(Line):
        def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
            return bool(np.linalg.norm(achieved - desired) == 0)

    rules = GoalRules(Scalar(), COLUMNS)
    found = rules.terminated(np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]]))
    assert found.tolist() == [True, False]


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(0, 1, (3,)),
        gym.spaces.Dict({"achieved_goal": gym.spaces.Box(0, 1, (3,)), "seen": gym.spaces.Box(0, 1, (3,))}),
        gym.spaces.Dict({"achieved_goal": gym.spaces.Box(0, 1, (3,)), "desired_goal": gym.spaces.Box(0, 1, (2,))}),
        gym.spaces.Dict({"achieved_goal": gym.spaces.Discrete(3), "desired_goal": gym.spaces.Discrete(3)}),
    ],
)
def test_spaces_without_goals_are_refused(space: Any) -> None:
    with pytest.raises(EnvError, match=r"algo_kwargs\.hindsight needs"):
        GoalColumns.of(Spaces(space, gym.spaces.Discrete(2)))
    assert goal_replay.CHECKED_STEPS > 0
