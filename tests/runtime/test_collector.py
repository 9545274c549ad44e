"""The collector: what N envs did, in the learner's terms, whatever their autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from collector_helpers import CountingLearner, Scripted, collector_of
from probe_suite import BOTH_MODES
from rl_training.envs.failures import RESTARTED
from rl_training.envs.probes import AutoresetCanaryProbe, EnvIndexProbe, Probe, probe_vector_env
from rl_training.errors import EnvError, NumericalError
from rl_training.runtime.collection.collector import Collector
from rl_training.runtime.collection.steps import Episode

SAME, NEXT = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP


def canaries(mode: AutoresetMode, num_envs: int = 2, **parameters: Any) -> tuple[Collector, CountingLearner]:
    return collector_of(probe_vector_env(AutoresetCanaryProbe, num_envs, autoreset_mode=mode, **parameters))


@BOTH_MODES
@pytest.mark.parametrize("truncate", [False, True], ids=["terminated", "truncated"])
def test_steps_carry_the_true_successor_and_tell_the_two_ends_apart(mode: AutoresetMode, truncate: bool) -> None:
    collector, _ = canaries(mode, length=3, truncate=truncate)
    steps = [step for step in (collector.step() for _ in range(12)) if step.valid.all()]
    assert len(steps) == (12 if mode is SAME else 9)
    for number, step in enumerate(steps):
        shown = number % 3 + 1
        last = shown == 3
        np.testing.assert_array_equal(step.obs, [[shown]] * 2)
        np.testing.assert_array_equal(step.rewards, [shown] * 2)
        np.testing.assert_array_equal(step.next_obs, [[-1.0 if last else shown + 1]] * 2)
        np.testing.assert_array_equal(step.terminated, [last and not truncate] * 2)
        np.testing.assert_array_equal(step.truncated, [last and truncate] * 2)
        np.testing.assert_array_equal(step.episode_starts, [shown == 1] * 2)
        assert step.episodes == ([Episode(6.0, 3)] * 2 if last else [])


def test_the_reset_row_of_next_step_autoreset_is_marked_invalid_and_nothing_else_is() -> None:
    collector, learner = canaries(NEXT, length=2)
    valid = [collector.step().valid.tolist() for _ in range(6)]
    assert valid == [[True] * 2, [True] * 2, [False] * 2] * 2
    np.testing.assert_array_equal(np.array(learner.starts)[:, 0], [True, False, False, True, False, False])


def test_same_step_acts_on_the_reset_observation_while_the_final_one_is_stored() -> None:
    collector, learner = canaries(SAME, length=2)
    for _ in range(5):
        collector.step()
    np.testing.assert_array_equal(np.array(learner.seen)[:, 0, 0], [1, 2, 1, 2, 1])
    np.testing.assert_array_equal(np.array(learner.starts)[:, 0], [True, False, True, False, True])


@BOTH_MODES
def test_envs_that_end_at_different_times_do_not_disturb_each_other(mode: AutoresetMode) -> None:
    envs = SyncVectorEnv(
        [lambda: AutoresetCanaryProbe(2), lambda: AutoresetCanaryProbe(3, truncate=True)], autoreset_mode=mode
    )
    collector, _ = collector_of(envs)
    finished: list[list[Episode]] = [[], []]
    for _ in range(12):
        step = collector.step()
        for env in range(2):
            if step.valid[env]:
                over = step.terminated[env] or step.truncated[env]
                assert step.rewards[env] == step.obs[env, 0]
                assert step.next_obs[env, 0] == (-1.0 if over else step.obs[env, 0] + 1)
                assert over == (step.obs[env, 0] == 2 + env)
                assert not (over and step.terminated[env] == bool(env))
        for episode in step.episodes:
            finished[episode.length - 2].append(episode)
    rows_each = (2, 3) if mode is SAME else (3, 4)
    assert finished[0] == [Episode(3.0, 2)] * (12 // rows_each[0])
    assert finished[1] == [Episode(6.0, 3)] * (12 // rows_each[1])


@BOTH_MODES
@pytest.mark.parametrize("truncate", [False, True], ids=["terminated", "truncated"])
def test_a_rollout_names_the_final_observation_of_every_truncated_step(mode: AutoresetMode, truncate: bool) -> None:
    collector, _ = canaries(mode, length=2, truncate=truncate)
    rollout, episodes = collector.collect(5)
    assert rollout.obs.shape == (5, 2, 1)
    ends = [1, 3] if mode is SAME else [1, 4]
    expected = [(t, env) for t in ends for env in range(2)] if truncate else []
    assert list(zip(rollout.final_steps.tolist(), rollout.final_envs.tolist(), strict=True)) == expected
    np.testing.assert_array_equal(rollout.final_obs, np.full((len(expected), 1), -1.0))
    assert np.argwhere(rollout.ends[:, 0]).ravel().tolist() == ends
    np.testing.assert_array_equal(rollout.last_obs, collector.obs)
    assert episodes == [Episode(3.0, 2)] * 4
    assert int(rollout.valid.sum()) == (10 if mode is SAME else 8)


def test_rollouts_follow_each_other_without_a_gap() -> None:
    collector, learner = canaries(SAME, num_envs=1, length=4)
    first, _ = collector.collect(3)
    shown = [first.obs.copy(), first.last_obs.copy(), first.extras["log_probs"].copy()]
    second, episodes = collector.collect(2)
    np.testing.assert_array_equal(shown[0][:, 0, 0], [1, 2, 3])
    np.testing.assert_array_equal(shown[1], second.obs[0])
    np.testing.assert_array_equal(second.obs[:, 0, 0], [4, 1])
    np.testing.assert_array_equal(shown[2][:, 0], [-1, -2, -3])
    np.testing.assert_array_equal(second.extras["log_probs"][:, 0], [-4, -5])
    assert episodes == [Episode(10.0, 4)]
    assert first.initial_memory is None
    assert second.initial_memory == 3
    assert learner.memories == [None, 1, 2, 3, 4]


def test_what_follows_a_rollout_is_what_is_acted_on_next_even_after_an_end() -> None:
    collector, learner = canaries(SAME, num_envs=1, length=2, truncate=True)
    rollout, _ = collector.collect(4)
    assert (rollout.last_obs.item(), rollout.final_obs[-1].item()) == (1.0, -1.0)
    collector.step()
    np.testing.assert_array_equal(learner.seen[-1], rollout.last_obs)


def test_columns_of_a_rollout_are_envs() -> None:
    collector, _ = collector_of(probe_vector_env(EnvIndexProbe, 3))
    rollout, _ = collector.collect(4)
    np.testing.assert_array_equal(rollout.rewards, [[0.0, 1.0, 2.0]] * 4)
    np.testing.assert_array_equal(rollout.obs[..., 0], rollout.rewards)


def test_a_reset_forgets_running_returns_lengths_and_memory() -> None:
    collector, learner = canaries(NEXT, num_envs=1, length=3)
    for _ in range(3):
        collector.step()
    collector.reset(at_env_step=100)
    steps = [collector.step() for _ in range(3)]
    assert all(step.valid.all() for step in steps)
    assert steps[0].episode_starts.all()
    assert steps[0].memory is None
    assert steps[-1].episodes == [Episode(6.0, 3)]
    assert learner.memories[3:] == [None, 1, 2]


def test_a_random_action_leaves_the_memory_of_the_policy_as_it_is() -> None:
    collector, learner = canaries(SAME, num_envs=1, length=9)
    collector.step()
    collector.step(random=True)
    collector.step()
    assert learner.memories == [None, 1]


class NoisyProbe(Probe):
    """Shows random numbers, so that a seed can be told by what it shows."""

    def start(self) -> Any:
        return [self.np_random.random()]

    def advance(self, action: Any) -> Any:
        return [self.np_random.random()], 0.0, False, False


def test_first_observations_differ_between_envs_and_resets_but_repeat_with_the_seed() -> None:
    def first(seed: int, at: int) -> list[float]:
        collector, _ = collector_of(probe_vector_env(NoisyProbe, 3), seed)
        collector.reset(at)
        return collector.obs.ravel().tolist()

    shown = first(0, 0) + first(0, 50) + first(1, 0)
    assert len(set(shown)) == 9
    assert first(0, 50) == shown[3:6]


class DictProbe(Probe):
    """The canary with a Dict observation."""

    def __init__(self) -> None:
        super().__init__()
        number = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.observation_space = gym.spaces.Dict({"where": number, "which": gym.spaces.Discrete(3)})  # type: ignore

    def _show(self, value: float) -> dict[str, Any]:
        return {"where": np.array([value], np.float32), "which": self.elapsed % 3}

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**options)
        return self._show(1.0), {}

    def start(self) -> Any:
        return [0.0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        over = self.elapsed == 2
        return self._show(-1.0 if over else 2.0), 1.0, False, over, {}


def test_final_observations_of_dict_spaces_are_encoded() -> None:
    collector, _ = collector_of(probe_vector_env(DictProbe, 2))
    collector.step()
    last = collector.step()
    np.testing.assert_array_equal(last.next_obs, [[-1.0, 0.0, 0.0, 1.0]] * 2)
    np.testing.assert_array_equal(collector.obs, [[1.0, 1.0, 0.0, 0.0]] * 2)


def test_final_obs_may_be_one_array_for_all_rows_and_only_finished_rows_are_read() -> None:
    envs = Scripted()
    collector, _ = collector_of(envs)
    finals = np.array([[7.0], [99.0]], np.float32)
    envs.outcomes = [([[1.0], [2.0]], [3, 4], [True, False], [False, False], {"final_obs": finals})]
    step = collector.step()
    np.testing.assert_array_equal(step.next_obs, [[7.0], [2.0]])
    np.testing.assert_array_equal(collector.obs, [[1.0], [2.0]])
    np.testing.assert_array_equal(step.obs, [[1.0], [1.0]])
    assert step.episodes == [Episode(3.0, 1)]


def test_a_reward_on_a_reset_row_belongs_to_no_episode() -> None:
    envs = Scripted(NEXT)
    collector, _ = collector_of(envs)
    done, going = [True, False], [False, False]
    envs.outcomes = [
        ([[2.0], [2.0]], [1, 1], done, going, {}),
        ([[1.0], [3.0]], [50, 1], going, going, {}),
        ([[2.0], [4.0]], [1, 1], done, going, {}),
    ]
    steps = [collector.step() for _ in range(3)]
    assert [step.episodes for step in steps] == [[Episode(1.0, 1)], [], [Episode(1.0, 1)]]
    assert steps[1].valid.tolist() == [False, True]


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, None, "sometimes"])
def test_an_env_that_does_not_say_how_it_resets_is_refused(mode: Any) -> None:
    with pytest.raises(EnvError, match="autoreset mode"):
        collector_of(Scripted(mode))


def test_a_same_step_env_without_final_observations_is_refused_in_one_line() -> None:
    envs = Scripted()
    collector, _ = collector_of(envs)
    envs.outcomes = [([[1.0], [2.0]], [3, 4], [True, False], [False, False], {})]
    with pytest.raises(EnvError, match="final_obs") as caught:
        collector.step()
    assert "\n" not in str(caught.value)


NAN = float("nan")


@pytest.mark.parametrize(
    ("obs", "rewards", "final", "complaint"),
    [
        ([[1.0], [1.0]], [0.0, NAN], [[0.0], [0.0]], "env 1 returned a reward"),
        ([[1.0], [1.0]], [float("inf"), -float("inf")], [[0.0], [0.0]], "env 0 returned a reward"),
        ([[NAN], [1.0]], [0.0, 0.0], [[0.0], [0.0]], "env 0 returned an observation"),
        ([[1.0], [1.0]], [0.0, 0.0], [[0.0], [NAN]], "env 1 returned a final observation"),
    ],
)
def test_what_is_not_finite_is_refused_with_env_step_and_field(
    obs: Any, rewards: Any, final: Any, complaint: str
) -> None:
    envs = Scripted()
    collector, _ = collector_of(envs)
    collector.reset(1234)
    envs.outcomes = [(obs, rewards, [False, True], [False, False], {"final_obs": np.array(final, np.float32)})]
    with pytest.raises(NumericalError, match=complaint) as caught:
        collector.step()
    assert "after env step 1236:" in str(caught.value)


def test_a_first_observation_that_is_not_finite_is_refused() -> None:
    with pytest.raises(NumericalError, match="env 1 returned an observation"):
        collector_of(Scripted(obs=[[1.0], [NAN]]))


def test_a_row_that_is_a_reset_and_breaks_is_left_out_of_the_env_steps_once() -> None:
    """Under next-step autoreset, the row after the end of an episode is a reset. Env 1 breaks in that row."""
    envs = Scripted(NEXT)
    collector, _ = collector_of(envs)
    calm: list[Any] = [[[1.0], [1.0]], [0.0, 0.0], [False, False], [False, False]]
    envs.outcomes = [
        ([[1.0], [1.0]], [0.0, 0.0], [False, True], [False, False], {}),
        (*calm, {RESTARTED: np.array([False, True])}),
        (*calm, {}),
        (*calm, {RESTARTED: np.array([False, True])}),
    ]
    steps = [collector.step() for _ in range(4)]
    assert [step.valid.tolist() for step in steps] == [[True, True], [True, False], [True, True], [True, False]]
    assert collector.env_step == sum(step.valid.sum() for step in steps) == 6
