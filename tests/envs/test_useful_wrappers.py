"""Wrappers to name in a config: repeated actions that draw once, and one pedal for a car."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs.useful_wrappers import ActionRepeat, OnePedal


class Drawn(gym.Env[Any, Any]):
    """Shows how often it was stepped; `draws` counts how often it was drawn."""

    observation_space = gym.spaces.Box(0, 255, (1,), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, length: int = 10) -> None:
        self.length, self.draws = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self.paint(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.paint(), float(action), self.steps == self.length, False, {"at": self.steps}

    def paint(self) -> np.ndarray:
        self.draws += 1
        return np.array([self.steps], np.uint8)


def test_rewards_are_summed_and_the_last_observation_is_shown() -> None:
    env = ActionRepeat(Drawn(), 4)
    env.reset()
    observation, reward, terminated, truncated, info = env.step(2)
    assert (observation[0], reward, terminated, truncated, info) == (4, 8.0, False, False, {"at": 4})


def test_an_end_ends_the_repetition() -> None:
    env = ActionRepeat(Drawn(6), 4)
    env.reset()
    env.step(1)
    observation, reward, terminated, _, _ = env.step(1)
    assert (observation[0], reward, terminated) == (6, 2.0, True)


@pytest.mark.parametrize("length", [10, 6])
def test_with_draw_the_same_is_seen_and_less_is_drawn(length: int) -> None:
    plain, lazy = ActionRepeat(Drawn(length), 4), ActionRepeat(Drawn(length), 4, draw="paint")
    assert plain.reset()[0] == lazy.reset()[0]
    for _ in range(2):
        assert plain.step(1) == lazy.step(1)
    assert (plain.unwrapped.draws, lazy.unwrapped.draws) == (1 + min(length, 8), 3)  # type: ignore[attr-defined]
    assert "paint" not in vars(lazy.unwrapped)  # the method of the class is back


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"repeat": 0}, "repeat=0 is not valid, expected a whole number from 1 on"),
        ({"repeat": True}, "repeat=True is not valid"),
        ({"repeat": 2, "draw": "nothing"}, "draw='nothing' is not valid, the environment has no such method"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ActionRepeat(Drawn(), **options)


def test_draw_must_come_first() -> None:
    space = gym.spaces.Box(0, 255, (2,), np.uint8)
    changed = gym.wrappers.TransformObservation(Drawn(), lambda row: np.repeat(row, 2), space)
    with pytest.raises(ValueError, match="put ActionRepeat first in wrappers"):
        ActionRepeat(changed, 2, draw="paint")


def test_carracing_looks_the_same_and_is_drawn_once_per_action() -> None:
    pytest.importorskip("Box2D")
    plain, lazy = (OnePedal(ActionRepeat(gym.make("CarRacing-v3"), 3, draw)) for draw in (None, "_render"))
    assert (plain.reset(seed=3)[0] == lazy.reset(seed=3)[0]).all()
    plain.action_space.seed(0)
    for _ in range(5):
        action = plain.action_space.sample()
        one, other = plain.step(action), lazy.step(action)
        assert (one[0] == other[0]).all() and one[1:] == other[1:]
    plain.close()
    lazy.close()


def test_one_pedal_is_gas_or_brake() -> None:
    pytest.importorskip("Box2D")
    env = OnePedal(gym.make("CarRacing-v3"))
    assert env.action(np.float32([0.5, 0.25])).tolist() == [0.5, 0.25, 0.0]
    assert env.action(np.float32([-1.0, -0.5])).tolist() == [-1.0, 0.0, 0.5]
    with pytest.raises(ValueError, match="OnePedal is for the actions steering, gas and brake"):
        OnePedal(Drawn())
