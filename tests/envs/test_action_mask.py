"""Action masks: where an env may show them, how they become part of the observation, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from collector_helpers import CountingLearner
from masked_envs import ACTION_SPACES, SIZES, Strict, masked_spaces, random_masks, random_rows, strict_vector
from rl_training.algorithms.common.exploration import epsilon_greedy, random_actions, uniform_allowed
from rl_training.algorithms.common.streams import Streams
from rl_training.checkup.env_check import check_env
from rl_training.envs.action_mask import ActionMaskFromMethod, ActionMaskVector, MaskRemoved
from rl_training.envs.factory import make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.envs.task_probes import ForbiddenActionsProbe
from rl_training.errors import EnvError
from rl_training.runtime.collection.collector import Collector, Share

SAME, NEXT = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP
SEEN = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def dict_spaces(mask: gym.Space[Any], actions: gym.Space[Any]) -> Spaces:
    return Spaces(gym.spaces.Dict({"action_mask": mask, "seen": SEEN}), actions)


def test_the_mask_is_the_last_columns_of_the_observation() -> None:
    spaces = dict_spaces(gym.spaces.MultiBinary(3), gym.spaces.Discrete(3))
    encoded = spaces.encode_one({"action_mask": np.array([1, 0, 1], np.int8), "seen": np.float32([0.5, -1])})
    np.testing.assert_array_equal(encoded, [0.5, -1, 1, 0, 1])
    assert (spaces.observation_shape, spaces.feature_shape, spaces.mask_size) == ((5,), (2,), 3)
    masks = spaces.action_masks(encoded[None])
    assert masks is not None
    np.testing.assert_array_equal(masks, [[True, False, True]])
    again = Spaces.from_json(spaces.to_json())
    assert again.mask_size == 3
    assert Spaces(SEEN, gym.spaces.Discrete(3)).action_masks(encoded[None]) is None


@pytest.mark.parametrize(
    ("mask", "actions", "words"),
    [
        (gym.spaces.MultiBinary(4), gym.spaces.Discrete(3), "has 4 entries.*of 3"),
        (gym.spaces.Discrete(3), gym.spaces.Discrete(3), "MultiBinary or Box of 3"),
        (gym.spaces.MultiBinary(5), gym.spaces.MultiDiscrete([3, 3]), "of 6"),
        (gym.spaces.MultiBinary(2), gym.spaces.Box(-1, 1, (2,)), "needs discrete actions.*action_masks=off"),
    ],
)
def test_a_mask_that_does_not_fit_the_actions_is_refused(mask: Any, actions: Any, words: str) -> None:
    with pytest.raises(EnvError, match=words) as refusal:
        dict_spaces(mask, actions)
    assert "\n" not in str(refusal.value)


def test_rows_in_which_some_choice_has_no_action_are_found() -> None:
    spaces = masked_spaces("multi_discrete")
    rows = random_rows(4, "multi_discrete")
    assert spaces.rows_without_action(rows).tolist() == []
    rows[2, 3 + 3 : 3 + 5] = 0  # the second of three choices
    assert spaces.rows_without_action(rows).tolist() == [2]


def test_uniform_actions_are_uniform_among_the_allowed_ones() -> None:
    masks = np.array([[True, False, True, True]] * 6000)
    counts = np.bincount(uniform_allowed(masks, np.random.default_rng(0)), minlength=4)
    assert counts[1] == 0
    np.testing.assert_allclose(counts[[0, 2, 3]] / 6000, 1 / 3, atol=0.02)


@pytest.mark.parametrize("kind", SIZES)
def test_random_actions_obey(kind: str) -> None:
    spaces, rows = masked_spaces(kind), random_rows(500, kind)
    masks = spaces.action_masks(rows)
    actions = random_actions(spaces, 500, np.random.default_rng(1), masks)
    assert actions.shape == (500, *spaces.action_shape)
    assert masks is not None and np.take_along_axis(masks, actions.reshape(500, -1) + spaces.choice_starts, 1).all()


@pytest.mark.parametrize("rows", [1, 400])
def test_epsilon_actions_obey(rows: int) -> None:
    masks = random_masks(np.random.default_rng(0), rows)
    greedy = masks.argmax(1)
    rng = np.random.default_rng(1)
    for epsilon, differ in ((0.0, False), (1.0, True)):
        chosen = epsilon_greedy(lambda obs: greedy, np.zeros((rows, 3)), 5, epsilon, rng, masks)
        assert masks[np.arange(rows), chosen].all()
        assert rows == 1 or (chosen != greedy).any() == differ


@pytest.mark.parametrize("masks", ["info", "method", "key"])
def test_masks_from_every_place_give_the_same_observations(masks: str) -> None:
    kwargs = {"action_masks": "info"} if masks == "info" else {}
    env = make_env(lambda: Strict(masks=masks), kwargs)
    spaces = Spaces(env.observation_space, env.action_space)
    assert spaces.mask_size == 5
    reference = Strict()
    observation, expected = env.reset(seed=4)[0], reference.reset(seed=4)[0]
    reference_spaces = masked_spaces()
    for _ in range(40):
        assert env.observation_space.contains(observation)
        np.testing.assert_array_equal(spaces.encode_one(observation), reference_spaces.encode_one(expected))
        allowed = 2 + int(np.argmax(expected["action_mask"]))
        observation, *outcome = env.step(allowed)
        expected, *known = reference.step(allowed)
        assert outcome[:3] == known[:3]
        if outcome[1] or outcome[2]:
            observation, expected = env.reset()[0], reference.reset()[0]


def test_off_hides_masks_wherever_they_are() -> None:
    for masks in ("key", "info", "method"):
        env = make_env(lambda masks=masks: Strict(masks=masks), {"action_masks": "off"})
        observation, info = env.reset(seed=0)
        assert Spaces(env.observation_space, env.action_space).mask_size == 0
        assert "action_mask" not in info
        assert not isinstance(observation, dict) or set(observation) == {"seen"}
    assert make_env(Strict, {"action_masks": False}).observation_space == gym.spaces.Dict(
        {"seen": gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)}
    )


@pytest.mark.parametrize(
    ("env", "kwargs", "words"),
    [
        ("CartPole-v1", {"action_masks": "maybe"}, "'maybe' is not valid, expected one of auto, info, off"),
        ("Pendulum-v1", {"action_masks": "info"}, "the actions are not discrete"),
        (Strict, {"action_masks": "info"}, "masks are in the observations"),
        ("ALE/Pong-v5", {"action_masks": "info", "atari": True}, "has no action masks"),
    ],
)
def test_an_option_without_a_use_is_refused(env: Any, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvError, match=words):
        make_env(env, kwargs)


def test_an_env_without_the_promised_mask_says_so() -> None:
    env = make_env("CartPole-v1", {"action_masks": "info"})
    with pytest.raises(EnvError, match=r"info has no 'action_mask'.*action_masks=off"):
        env.reset(seed=0)


@pytest.mark.parametrize("ends", [True, False])
def test_a_mask_may_be_absent_only_where_an_episode_terminates(ends: bool) -> None:
    class Quiet(gym.Env[Any, Any]):
        """Shows no mask after its only step."""

        observation_space, action_space = SEEN, gym.spaces.Discrete(3)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros(2, np.float32), {"action_mask": np.array([0, 1, 0])}

        def step(self, action: Any) -> Any:
            return np.zeros(2, np.float32), 0.0, ends, not ends, {}

    env = make_env(Quiet, {"action_masks": "info"})
    np.testing.assert_array_equal(env.reset(seed=0)[0]["action_mask"], [0, 1, 0])
    if ends:
        np.testing.assert_array_equal(env.step(1)[0]["action_mask"], [1, 1, 1])
    else:
        with pytest.raises(EnvError, match=r"info has no 'action_mask': return it from reset and from every step"):
            env.step(1)


def test_masks_of_several_choices_may_be_a_tuple_and_their_length_is_checked() -> None:
    class Tuples(Strict):
        def __init__(self) -> None:
            super().__init__("multi_discrete", "none")
            self.answer: Any = (np.array([1, 0, 1], np.int8), np.array([0, 1], np.int8), np.array([1] * 4, np.int8))

        def action_masks(self) -> Any:
            return self.answer

    env = make_env(Tuples)
    np.testing.assert_array_equal(env.reset(seed=0)[0]["action_mask"], [1, 0, 1, 0, 1, 1, 1, 1, 1])
    env.unwrapped.answer = np.ones(8)
    with pytest.raises(EnvError, match=r"has 8 entries.*9 actions"):
        env.reset(seed=0)


def test_taxi_names_its_masks_and_can_use_them() -> None:
    plain = make_env("Taxi")
    assert Spaces(plain.observation_space, plain.action_space).mask_size == 0
    assert any("env_kwargs.action_masks=info" in finding.detail for finding in check_env("Taxi").findings)
    env = make_env("Taxi", {"action_masks": "info"})
    observation, info = env.reset(seed=0)
    np.testing.assert_array_equal(observation["action_mask"], info["action_mask"])
    assert check_env("Taxi", {"action_masks": "info"}).usable


def test_a_run_says_once_that_masks_in_infos_are_not_used() -> None:
    for kwargs, told in (({}, 1), ({"action_masks": "info"}, 0), ({"action_masks": "off"}, 0)):
        envs = make_vector_env(lambda: Strict(masks="info"), 1, env_kwargs=kwargs)
        collector = collector_over(envs)
        collector.reset(10)
        problems = collector.info_numbers.take_problems()
        assert len(problems) == told
        assert all("env_kwargs.action_masks=info" in problem for problem in problems)


def test_a_run_says_that_masks_of_a_given_vector_env_are_not_used() -> None:
    for wrap, told in ((lambda env: env, 1), (ActionMaskFromMethod, 0), (MaskRemoved, 0)):
        envs: Any = SyncVectorEnv([lambda wrap=wrap: wrap(Strict(masks="method"))] * 2, autoreset_mode=SAME)
        problems = collector_over(envs).info_numbers.take_problems()
        assert len(problems) == told
        assert all("wrap each env in rl_training.envs.action_mask.ActionMaskFromMethod" in text for text in problems)


def test_a_selection_of_keys_keeps_the_mask() -> None:
    env = make_env(Strict, {"observation_keys": ["seen"]})
    assert Spaces(env.observation_space, env.action_space).mask_size == 5
    assert set(env.reset(seed=0)[0]) == {"seen", "action_mask"}
    hidden = make_env(Strict, {"observation_keys": ["seen"], "action_masks": "off"})
    assert set(hidden.reset(seed=0)[0]) == {"seen"}


def collector_over(envs: Any, first_env: int = 0) -> Collector:
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    learner = CountingLearner(spaces)

    def act(obs: np.ndarray, **others: Any) -> Any:
        action = CountingLearner.act(learner, obs, **others)
        action.actions = random_actions(spaces, len(obs), rng, spaces.action_masks(obs))
        return action

    rng = np.random.default_rng(0)
    learner.act = act  # type: ignore[method-assign]
    return Collector(envs, spaces, learner, Streams(0), share=Share(first_env))  # type: ignore[arg-type]


@pytest.mark.parametrize("masks", ["key", "info"])
@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_a_vector_env_of_either_mode_never_gets_a_forbidden_action(mode: AutoresetMode, masks: str) -> None:
    collector = collector_over(strict_vector(3, mode, masks))
    ends = 0
    for number in range(300):
        step = collector.step(random=number % 2 == 0, repeat=3)
        done = step.terminated | step.truncated
        ends += int(done.sum())
        # What follows is never a row without an action: its value would be NaN.
        assert len(collector.spaces.rows_without_action(step.next_obs)) == 0
    assert ends > 30


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_the_mask_of_a_truncated_state_is_its_own(mode: AutoresetMode) -> None:
    class Cut(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
        action_space = gym.spaces.Discrete(3)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.elapsed = 0
            return np.zeros(1, np.float32), {"action_mask": np.array([1, 0, 0], np.int8)}

        def step(self, action: Any) -> Any:
            self.elapsed += 1
            mask = np.array([1, 1, 0] if self.elapsed == 2 else [1, 0, 1], np.int8)
            return np.float32([self.elapsed]), 0.0, False, self.elapsed == 2, {"action_mask": mask}

    collector = collector_over(ActionMaskVector(SyncVectorEnv([Cut, Cut], autoreset_mode=mode)))
    collector.step()
    step = collector.step()
    assert step.truncated.all()
    np.testing.assert_array_equal(step.next_obs, [[2, 1, 1, 0]] * 2)
    if mode is SAME:
        np.testing.assert_array_equal(collector.obs, [[0, 1, 0, 0]] * 2)


class Stuck(Strict):
    """Allows nothing in its third state, without an end."""

    def _look(self, terminated: bool) -> tuple[Any, dict[str, Any]]:
        observation, info = super()._look(False)
        if self.elapsed == 2:
            self.mask[:] = False
            observation["action_mask"][:] = 0
        return observation, info

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:2], False, False, {})


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_state_without_an_allowed_action_is_an_error_with_the_index_of_its_env(backend: str) -> None:
    envs: Any = SyncVectorEnv([Strict, Stuck], autoreset_mode=SAME)
    if backend == "async":
        envs = make_vector_env(Stuck, 1, backend="async")
    collector = collector_over(envs)
    index = 0 if backend == "async" else 1
    with pytest.raises(EnvError, match=f"env {index} allows no action .*after env step"):
        for _ in range(5):
            collector.step()
    envs.close()


class Over(Stuck):
    """Its episode terminates in the state in which nothing is allowed, as it may."""

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, self.elapsed == 2, False, {}


@pytest.mark.parametrize("first_env", [0, 4])
def test_the_index_is_that_of_the_run_and_of_an_env_that_goes_on(first_env: int) -> None:
    """Env 0 of this collector, which steps the envs from `first_env` on, ends in the step in which env 1 is stuck."""
    collector = collector_over(SyncVectorEnv([Over, Stuck], autoreset_mode=SAME), first_env)
    with pytest.raises(EnvError, match=f"^env {first_env + 1} allows no action"):
        for _ in range(3):
            collector.step()


def test_the_probe_counts_forbidden_actions_and_pays_for_the_named_one() -> None:
    env = ForbiddenActionsProbe(actions=6, forbidden=3, length=4)
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        assert observation["action_mask"].sum() == 3
        named = int(observation["shown"].argmax())
        assert observation["action_mask"][named] == 1
        observation, reward, terminated, truncated, _ = env.step(named)
        assert (reward, terminated, truncated) == (1.0, False, False)
    forbidden = int(np.flatnonzero(observation["action_mask"] == 0)[0])
    _, reward, _, truncated, info = env.step(forbidden)
    assert (reward, truncated, info["invalid_actions"]) == (0.0, True, 1)
    with pytest.raises(ValueError, match="forbidden"):
        ForbiddenActionsProbe(actions=3, forbidden=3)
    assert set(ACTION_SPACES) == set(SIZES)
