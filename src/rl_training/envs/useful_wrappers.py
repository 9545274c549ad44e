"""Wrappers to name in `wrappers` that Gymnasium does not have: repeated actions, and one pedal for a car."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """Take each action `repeat` times and sum the rewards. An episode that ends in between ends the repetition.

    `draw` names the method of the environment that draws its observation. Of all steps of one action, only the last
    one draws: the others are not seen, and drawing may be most of the work (in CarRacing it is nine tenths).
    """

    def __init__(self, env: gym.Env[Any, Any], repeat: int, draw: str | None = None) -> None:
        super().__init__(env)
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"repeat={repeat!r} is not valid, expected a whole number from 1 on")
        if draw is not None and not callable(getattr(env.unwrapped, draw, None)):
            raise ValueError(f"draw={draw!r} is not valid, the environment has no such method")
        if draw is not None and env.observation_space != env.unwrapped.observation_space:
            raise ValueError("draw needs the environment's own observations: put ActionRepeat first in wrappers")
        self.repeat, self.draw = repeat, draw

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for left in reversed(range(self.repeat)):
            with self._undrawn(skip=left > 0) as draw_now:
                observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                return draw_now() if left > 0 and self.draw else observation, total, terminated, truncated, info
        return observation, total, terminated, truncated, info

    @contextmanager
    def _undrawn(self, skip: bool) -> Iterator[Callable[[], Any]]:
        """Within the block nothing is drawn if `skip`; what is yielded draws what the block left out."""
        env = self.env.unwrapped
        if not skip or self.draw is None:
            yield lambda: None
            return
        real = getattr(env, self.draw)
        called: list[tuple[Any, ...]] = []

        def skipped(*args: Any) -> Any:
            called.append(args)
            return self._blank

        setattr(env, self.draw, skipped)  # on the instance: the method of the class is found again after `delattr`
        try:
            yield lambda: real(*called[-1])
        finally:
            delattr(env, self.draw)

    @property
    def _blank(self) -> Any:
        """Something of the right form: wrappers in between may look at it, nobody else does."""
        space = self.env.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"draw is for environments that show a Box, this one shows {space}")
        return np.zeros(space.shape, space.dtype)


class OnePedal(gym.ActionWrapper[Any, Any, Any]):
    """Steer a car with two numbers instead of three: steering, and one pedal from full brake (-1) to full gas (1).

    For CarRacing, whose actions are steering in [-1, 1], gas in [0, 1] and brake in [0, 1]. A policy that is not
    trained yet presses both pedals half, so that the car does not get away. With one pedal it presses neither.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space, bounds = env.action_space, ([-1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
        if not isinstance(space, gym.spaces.Box) or (space.low.tolist(), space.high.tolist()) != bounds:
            raise ValueError(f"OnePedal is for the actions steering, gas and brake of CarRacing, not for {space}")
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def action(self, action: Any) -> np.ndarray:
        steering, pedal = action
        return np.array([steering, max(pedal, 0.0), max(-pedal, 0.0)], np.float32)
