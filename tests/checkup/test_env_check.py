"""`check_env`: each fault of an environment has its line and its fix, and a sound environment has none."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from rl_training.checkup import env_trial
from rl_training.checkup.env_check import check_env
from rl_training.checkup.env_trial import random_walk
from rl_training.checkup.finding import Finding
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.loading import list_presets, load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.envs.task_probes import BitFlipProbe, PointGoalProbe
from sick_envs import SickEnv


def check(fault: str = "", **options: bool) -> list[Finding]:
    return list(check_env("sick_envs:Sick-v0", {"fault": fault, **options}, steps=100).findings)


def faults(fault: str, **options: bool) -> list[Finding]:
    return [finding for finding in check(fault, **options) if finding.status != "ok"]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "sick_envs:Sick-v0"])
def test_a_sound_env_has_neither_warnings_nor_failures(env_id: str) -> None:
    report = rl_training.check_env(env_id, steps=100)
    assert report.usable and report.status == "ok", str(report)
    names = [finding.what for finding in report.findings]
    assert [name for name in names if name != "info"] == [
        "env",
        "spaces",
        "gymnasium",
        "seed",
        "steps",
        "episodes",
        "vector",
        "algorithms",
    ]


def test_algorithms_that_fit_are_named() -> None:
    last = check()[-1]
    fitting = [name for name, row in ALGORITHMS.items() if "discrete" in row.actions]
    assert "dqn" in fitting and "sac" not in fitting
    assert last.detail == f"these fit: {', '.join(fitting)}"
    assert "sac" in check(box=True)[-1].detail and "dqn" not in check(box=True)[-1].detail


# Training would stop: FAIL.
FAILURES = {
    "NaN reward": ("steps", "the reward is nan (step 7)", "correct the env: training stops at NaN"),
    "list reward": ("steps", "the reward is a list ([1.0, 2.0]), not a number (step 7)", "return float(reward)"),
    "lying shape": (
        "steps",
        "observation has shape (4,), its space has (3,) (step 7)",
        "correct the env or its observation_space",
    ),
    "NaN observation": ("steps", "an observation is not finite (step 7)", "correct the env: training stops at NaN"),
    "info is None": ("steps", "info is a NoneType, not a dict (step 7)", "return a dict, perhaps {}"),
    "old step": (
        "steps",
        "step does not return 5 values",
        "return (observation, reward, terminated, truncated, info), as Gymnasium's API says",
    ),
    "reset without info": (
        "steps",
        "reset does not return 2 values",
        "return (observation, info), as Gymnasium's API says",
    ),
}


@pytest.mark.parametrize("fault", FAILURES)
def test_a_fault_that_stops_training_fails(fault: str) -> None:
    failures = [finding for finding in check(fault) if finding.status == "fail"]
    assert [(finding.what, finding.detail, finding.fix) for finding in failures] == [FAILURES[fault]]


def test_an_exception_of_the_env_names_its_place() -> None:
    (failure,) = [finding for finding in check("exception") if finding.status == "fail"]
    assert failure.detail.startswith("step failed: sick_envs.py:")
    assert failure.detail.endswith("in step: ZeroDivisionError: the pole has no mass")


@pytest.mark.parametrize(
    ("fault", "what", "text"),
    [
        ("cannot be made", "env", "cannot be made: RuntimeError: no simulator"),
        ("text actions", "spaces", "action space Text(1, 5, char"),
        ("text observations", "spaces", "observation has the space Text(1, 5, char"),
    ],
)
def test_an_env_that_cannot_be_used_at_all(fault: str, what: str, text: str) -> None:
    *_, last = check(fault)
    assert (last.status, last.what) == ("fail", what)
    assert text in last.detail


# Training works, but something else does not: warn.
WARNINGS = {
    "ignored seed": (
        "seed",
        "reset(seed=0) gives another observation the second time, so runs cannot be repeated, and resume is not exact",
        "call super().reset(seed=seed) and draw random numbers from self.np_random only",
    ),
    "hidden randomness": (
        "seed",
        "the same seed and actions give another result at step 7, so runs cannot be repeated, and resume is not exact",
        "call super().reset(seed=seed) and draw random numbers from self.np_random only",
    ),
    "lying bounds": (
        "steps",
        "observation[1] is 3.5, outside its space (-1 to 1) (step 7)",
        "correct the bounds of observation_space; training itself does not use them",
    ),
    "array reward": ("steps", "the reward is a ndarray, not a plain number (step 7)", "return float(reward)"),
    "integer flag": ("steps", "terminated is a int, not a bool (step 7)", "return bool(terminated)"),
    "float image": (
        "spaces",
        "observation (3, 4, 4) of float32 is read as numbers, without a CNN",
        "to make it an image, give it dtype uint8, from 0 to 255",
    ),
    "unbounded actions": (
        "actions",
        "action[0] (-inf to inf) and 1 more has no bounds: replay algorithms refuse it, others do not scale it",
        "give the Box two bounds, or set action_bound",
    ),
}


@pytest.mark.parametrize("fault", WARNINGS)
def test_a_fault_that_training_survives_is_a_warning(fault: str) -> None:
    found = [finding for finding in faults(fault) if finding.what != "gymnasium"]
    assert [(finding.status, finding.what, finding.detail, finding.fix) for finding in found] == [
        ("warn", *WARNINGS[fault])
    ]


def test_what_gymnasium_says_is_passed_on() -> None:
    (finding,) = [each for each in faults("ignored seed") if each.what == "gymnasium"]
    assert finding.status == "warn"
    assert finding.detail.startswith("its checker refuses the env: AssertionError: ")
    assert "reset(seed=123)" in finding.detail


def test_action_bound_removes_the_warning_about_bounds() -> None:
    report = check_env("sick_envs:Sick-v0", {"fault": "unbounded actions"}, action_bound=2.0, steps=50)
    assert "actions" not in [finding.what for finding in report.findings]
    assert "sac" in report.findings[-1].detail


def test_an_env_that_may_never_end_names_the_ways_out() -> None:
    report = check_env("sick_envs:Endless-v0", {"fault": "no end"}, steps=300)
    (finding,) = [each for each in report.findings if each.status != "ok"]
    assert (finding.status, finding.what) == ("warn", "episodes")
    assert finding.detail == ("no episode ended in 300 random steps, and there is no time limit: one may never end")
    assert "max_episode_steps" in finding.fix and "TimeLimit" in finding.fix and "eval_max_steps" in finding.fix
    assert report.usable


def test_episodes_that_end_without_a_time_limit_are_fine() -> None:
    findings = check_env("sick_envs:Endless-v0", steps=100).findings
    (finding,) = [each for each in findings if each.what == "episodes"]
    assert (finding.status, finding.detail) == (
        "ok",
        "5 ended in 100 random steps, the longest after 20; no time limit",
    )


def test_a_slow_env_is_stepped_for_a_limited_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow() -> None:
        now[0] += 0.5

    monkeypatch.setattr(SickEnv, "on_step", staticmethod(slow))
    env = SickEnv()
    walk = random_walk(env, Spaces(env.observation_space, env.action_space), 1000, 20.0, lambda: now[0])
    assert walk.steps == 40
    first = next(iter(env_trial.check_walk(walk, None)))
    assert first.detail.startswith("40 random steps, of 1,000 asked: the env is slow: observations")


def test_infos_that_cannot_be_joined_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every second env has the fault. Gymnasium fails if the second of two has it, not if the first has.
    monkeypatch.setattr(SickEnv, "made", 1)
    (failure,) = [finding for finding in check("changing info") if finding.status == "fail"]
    assert failure.what == "vector"
    assert failure.detail.startswith("two envs side by side fail: ")


def test_a_maker_a_class_and_an_object_are_accepted() -> None:
    for maker in (SickEnv, partial(SickEnv, box=True), lambda: gym.make("CartPole-v1")):
        assert check_env(maker, steps=50).usable
    closed: list[bool] = []

    class Counted(SickEnv):
        def close(self) -> None:
            closed.append(True)

    env = Counted()
    report = check_env(env, steps=50)
    assert report.usable and closed == []
    assert report.findings[0].detail == "Counted can be made"


def test_a_vector_env_is_refused_in_one_line() -> None:
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    report = check_env(envs)  # type: ignore[arg-type]
    envs.close()
    assert [finding.status for finding in report.findings] == ["fail"]
    assert "pass a function that makes one of them" in report.findings[0].detail


def test_text_of_an_env_cannot_rewrite_the_terminal() -> None:
    def maker() -> gym.Env[np.ndarray, int]:
        raise RuntimeError("\x1b[2J first\nsecond")

    text = str(check_env(maker))
    assert "\x1b" not in text and len(text.splitlines()) == 1


def test_the_first_number_outside_a_nested_space_is_named() -> None:
    box = gym.spaces.Box(-1.0, 1.0, (2, 2), np.float32)
    space = gym.spaces.Dict({"mode": gym.spaces.Discrete(2), "arm": gym.spaces.Tuple([box, box])})
    inside = np.zeros((2, 2), np.float32)
    lie = np.array([[0.0, 0.0], [-7.0, 0.0]], np.float32)
    text = env_trial.outside_of({"mode": 0, "arm": (inside, lie)}, space)
    assert text == "observation['arm'][1][1, 0] is -7, outside its space (-1 to 1)"
    assert env_trial.outside_of({"mode": 0, "arm": (inside, inside)}, space) is None


class NoRule(gym.Wrapper):  # type: ignore[type-arg]
    compute_reward: Any = None


class Half(gym.Wrapper):  # type: ignore[type-arg]
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.unwrapped.compute_reward(achieved, desired, info) / 2  # type: ignore[attr-defined]


class OneGoal(gym.Wrapper):  # type: ignore[type-arg]
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return float(np.all(achieved == desired)) - 1.0


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (NoRule, "compute_reward(achieved_goal, desired_goal, info), but BitFlipProbe has none: add it"),
        (Half, "compute_reward says -0.5 where the env gave -1: make the two agree (no wrapper may change rewards)"),
        (OneGoal, "compute_reward returned shape () for 100 goals: write it for batches (axis=-1)"),
    ],
)
def test_rewards_that_do_not_follow_from_goals_are_a_warning(env: Any, words: str) -> None:
    report = check_env(lambda: env(BitFlipProbe(6)), steps=50)
    (finding,) = [each for each in report.findings if each.what == "goals"]
    assert report.usable and finding.status == "warn"
    assert finding.detail.endswith(words)
    assert finding.fix == "only hindsight replay needs this: correct it, or leave algo_kwargs.hindsight at 0"


@pytest.mark.parametrize("env", [BitFlipProbe, PointGoalProbe])
def test_rewards_that_follow_from_goals_are_fine(env: Any) -> None:
    (finding,) = [each for each in check_env(env, steps=50).findings if each.what == "goals"]
    assert (finding.status, finding.detail) == ("ok", "compute_reward agrees with 50 steps, in a batch and alone")


def test_goals_beside_an_image_are_not_judged() -> None:
    class Filmed(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            camera = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
            self.observation_space = gym.spaces.Dict({**env.observation_space.spaces, "camera": camera})

        def observation(self, observation: Any) -> Any:
            return {**observation, "camera": np.zeros((40, 40, 3), np.uint8)}

    assert not [each for each in check_env(lambda: Filmed(BitFlipProbe(6)), steps=20).findings if each.what == "goals"]


@cache
def preset_envs() -> dict[str, TrainConfig]:
    """One preset for each environment and its keywords."""
    configs = [load_config(name) for name in list_presets()]
    return {f"{config.env_id} {sorted(config.env_kwargs)}": config for config in configs}


@pytest.mark.parametrize("name", preset_envs())
def test_the_env_of_no_preset_has_a_warning(name: str) -> None:
    config = preset_envs()[name]
    report = check_env(config.env_id, config.env_kwargs, action_bound=config.action_bound, steps=50)
    warned = [finding.what for finding in report.findings if finding.status != "ok"]
    # The walker's episodes are not repeated by their seed, and the check says so.
    assert set(warned) <= ({"seed"} if config.env_id == "BipedalWalker-v3" else set()), str(report)
