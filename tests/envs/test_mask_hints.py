"""What a run and `check_env` say about action masks that are not read, or that Gymnasium's checker ignores."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from collector_helpers import CountingLearner
from masked_envs import SIZES, Strict
from rl_training.algorithms.common.streams import Streams
from rl_training.checkup.env_check import check_env
from rl_training.envs.factory import make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.runtime.collection.collector import Collector


class NearMiss(gym.Env[Any, Any]):
    """Shows something like a mask of four actions in `place`, under a name that is not read."""

    def __init__(self, place: str, size: int = 4, actions: gym.Space[Any] | None = None) -> None:
        self.place, self.size, self.action_space = place, size, actions or gym.spaces.Discrete(4)
        seen = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        parts = {"seen": seen, "action_masks": gym.spaces.MultiBinary(size)}
        self.observation_space: gym.Space[Any] = gym.spaces.Dict(parts) if place == "key" else seen
        if place == "method":
            self.action_mask = lambda: np.ones(size, np.int8)
        if place == "lookup":
            self.action_mask = lambda state: np.ones(size, np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look()

    def step(self, action: Any) -> Any:
        observation, info = self._look()
        # The last info of an episode has no mask, as no action follows.
        return (observation, 0.0, True, False, {}) if self.place == "info" else (observation, 0.0, True, False, info)

    def _look(self) -> tuple[Any, dict[str, Any]]:
        seen, mask = np.zeros(2, np.float32), np.ones(self.size, np.int8)
        info = {"action_masks": mask} if self.place == "info" else {}
        return ({"seen": seen, "action_masks": mask} if self.place == "key" else seen), info


RENAMED = {
    "key": "the key 'action_masks' of the observation .* rename it to 'action_mask' ",
    "info": r"info\['action_masks'\] .* rename it to 'action_mask' and set env_kwargs.action_masks=info ",
    "method": r"the method action_mask\(\) .* rename it to action_masks\(\) ",
}
TWO_CHOICES = gym.spaces.MultiDiscrete([2, 2])


def told_about(make: Any, kwargs: dict[str, Any], backend: Any = "sync") -> tuple[list[str], list[Any]]:
    """What a run says about masks, and what check-env warns of."""
    envs = make_vector_env(make, 2, env_kwargs=kwargs, backend=backend)
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    collector = Collector(envs, spaces, CountingLearner(spaces), Streams(0))  # type: ignore[arg-type]
    problems = collector.info_numbers.take_problems()
    envs.close()
    findings = check_env(make, kwargs, steps=20).findings
    return problems, [finding for finding in findings if finding.what == "masks"]


@pytest.mark.parametrize("actions", [None, TWO_CHOICES])
@pytest.mark.parametrize("place", RENAMED)
def test_something_like_a_mask_under_another_name_is_told(place: str, actions: Any) -> None:
    problems, findings = told_about(lambda: NearMiss(place, 4, actions), {})
    (problem,), (finding,) = problems, findings
    assert re.search(f"looks like an action mask.*{RENAMED[place].split('.*')[1]}", problem), problem
    assert re.match(RENAMED[place], problem) and "\n" not in problem
    assert finding.status == "warn" and f"{finding.detail}; {finding.fix}" == problem
    assert told_about(lambda: NearMiss(place, 4, actions), {"action_masks": "off"}) == ([], [])


def test_processes_pass_on_what_looks_like_a_mask_and_that_it_is_hidden() -> None:
    for kwargs, told in (({}, 1), ({"action_masks": "off"}, 0)):
        assert len(told_about(partial(NearMiss, "info"), kwargs, "async")[0]) == told


@pytest.mark.parametrize(
    "make",
    [
        lambda: NearMiss("key", 3),
        lambda: NearMiss("info", 3),
        lambda: NearMiss("lookup"),
        lambda: NearMiss("info", 4, gym.spaces.Box(-1.0, 1.0, (4,), np.float32)),
        Strict,
        lambda: Strict(masks="method"),
    ],
)
def test_what_is_no_mask_is_not_told(make: Any) -> None:
    assert told_about(make, {}) == ([], [])


@pytest.mark.parametrize("kind", SIZES)
def test_check_env_says_that_the_action_that_raised_was_forbidden(kind: str) -> None:
    (failure,) = [each for each in check_env(lambda: Strict(kind, "info")).findings if each.status == "fail"]
    assert failure.what == "steps" and "is not allowed" in failure.detail
    forbids = r"info\['action_mask'\] forbids the action .*, which was random: set env_kwargs.action_masks=info"
    assert re.match(forbids, failure.fix), failure.fix


def test_check_env_blames_no_mask_for_an_allowed_action() -> None:
    class Broken(Strict):
        def step(self, action: Any) -> Any:
            raise RuntimeError("no power")

        def _look(self, terminated: bool) -> tuple[Any, dict[str, Any]]:
            super()._look(terminated)
            return np.zeros(3, np.float32), {"action_mask": np.ones(5)}

    (failure,) = [each for each in check_env(lambda: Broken(masks="info")).findings if each.status == "fail"]
    assert failure.fix == "correct the env"


class NoDisk(NearMiss):
    """Fails for a reason of its own."""

    def step(self, action: Any) -> Any:
        raise RuntimeError("no disk")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nowhere", "correct the env"),
        ("info", "correct the env"),  # its mask allows every action
        (
            "method",
            "correct the env, unless it does not allow this action: the method action_mask.* action_masks\\(\\)",
        ),
        ("key", "correct the env, unless it does not allow this action: the key 'action_masks' .* 'action_mask'"),
    ],
)
def test_check_env_does_not_replace_its_fix_by_a_guess(place: str, words: str) -> None:
    (failure,) = [each for each in check_env(lambda: NoDisk(place)).findings if each.status == "fail"]
    assert re.fullmatch(words, failure.fix), failure.fix


class Guarded(NearMiss):
    """Nobody may look at its `action_mask`, as it fails."""

    @property
    def action_mask(self) -> Any:
        raise RuntimeError("no state given")


def test_a_hint_runs_nothing_of_the_env() -> None:
    assert told_about(lambda: Guarded("nowhere"), {}) == ([], [])


def test_gymnasiums_checker_is_no_judge_of_an_env_with_masks() -> None:
    kwargs = {"action_masks": "info"}
    (finding,) = [each for each in check_env(Never, kwargs).findings if each.what == "gymnasium"]
    assert (finding.status, finding.detail) == (
        "ok",
        "skipped: its checker ignores action masks, and a step raised RuntimeError: forbidden",
    )
    (other,) = [each for each in check_env(Unseeded, kwargs).findings if each.what == "gymnasium"]
    assert other.status == "warn" and "refuses the env" in other.detail


class Never(NearMiss):
    """Allows the last of a thousand actions."""

    def __init__(self) -> None:
        super().__init__("nowhere", 1000, gym.spaces.Discrete(1000))

    def step(self, action: Any) -> Any:
        if action != 999:
            raise RuntimeError("forbidden")
        return super().step(action)

    def _look(self) -> tuple[Any, dict[str, Any]]:
        return super()._look()[0], {"action_mask": np.arange(1000) == 999}


class Unseeded(Never):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._look()
