"""Probe envs: each so small that its true values are known, and each made to expose one kind of bug.

Values below are for discount g. Where the action does not matter, `continuous` chooses between Discrete(2)
and a Box in [-1, 1], so that every algorithm can take the probe. A step after the end of an episode raises:
whoever drives a probe must reset it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

Outcome = tuple[Sequence[float], float, bool, bool]
"""Next observation, reward, terminated, truncated."""


class Probe(gym.Env[NDArray[np.float32], Any]):
    """Base: a probe says how it starts and what an action leads to."""

    def __init__(self, *, observation_size: int = 1, continuous: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        if continuous:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.continuous = continuous
        self.elapsed = 0
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.elapsed = 0
        self._running = True
        return np.array(self.start(), np.float32), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if not self._running:
            raise RuntimeError("the episode is over: reset the probe before the next step")
        self.elapsed += 1
        observation, reward, terminated, truncated = self.advance(action)
        self._running = not (terminated or truncated)
        return np.array(observation, np.float32), float(reward), terminated, truncated, {}

    def start(self) -> Sequence[float]:
        """The first observation of an episode."""
        raise NotImplementedError

    def advance(self, action: Any) -> Outcome:
        """What this action leads to; `elapsed` already counts it."""
        raise NotImplementedError


class ConstantRewardProbe(Probe):
    """One step, reward 1: V = 1. Fails when the value loss or its optimizer is broken."""

    def start(self) -> Sequence[float]:
        return [0.0]

    def advance(self, action: Any) -> Outcome:
        return [0.0], 1.0, True, False


class ObservationRewardProbe(Probe):
    """One step, observation -1 or +1 pays itself: V(o) = o. Fails when observations go astray on the way."""

    def start(self) -> Sequence[float]:
        self.shown = float(self.np_random.choice([-1.0, 1.0]))
        return [self.shown]

    def advance(self, action: Any) -> Outcome:
        return [self.shown], self.shown, True, False


class DelayedRewardProbe(Probe):
    """`length` steps, observation = steps so far, reward 1 on the last: V(k) = g ** (length - 1 - k).

    Fails when discounting, or the number of steps of an n-step return, is wrong.
    """

    def __init__(self, length: int = 2, *, continuous: bool = False) -> None:
        super().__init__(continuous=continuous)
        self.length = length

    def start(self) -> Sequence[float]:
        return [0.0]

    def advance(self, action: Any) -> Outcome:
        over = self.elapsed == self.length
        return [float(self.elapsed)], float(over), over, False


class ActionChoiceProbe(Probe):
    """One step, two actions: `good_action` pays 1, the other -1. Fails when the policy is pushed wrongly."""

    def __init__(self, good_action: int = 1) -> None:
        super().__init__()
        self.good_action = good_action

    def start(self) -> Sequence[float]:
        return [0.0]

    def advance(self, action: Any) -> Outcome:
        return [0.0], 1.0 if int(action) == self.good_action else -1.0, True, False


class ContinuousBanditProbe(Probe):
    """One step, reward -(a - target) ** 2 for an action in [low, high].

    The best action is neither the centre nor a bound: fails when actions are scaled wrongly on the way.
    """

    def __init__(self, target: float = 2.5, low: float = 0.0, high: float = 3.0) -> None:
        super().__init__(continuous=True)
        self.action_space = gym.spaces.Box(low, high, (1,), np.float32)
        self.target = target

    def start(self) -> Sequence[float]:
        return [0.0]

    def advance(self, action: Any) -> Outcome:
        return [0.0], -((float(np.asarray(action).item()) - self.target) ** 2), True, False


class MatchObservationProbe(Probe):
    """One step, the action must match what is shown. Fails when actions and observations are paired wrongly.

    Discrete: -1 or +1 is shown and wants action 0 or 1, reward 1 for it and -1 else. Continuous: -0.5 or 0.5
    is shown, reward -(a - shown) ** 2.
    """

    def start(self) -> Sequence[float]:
        self.shown = float(self.np_random.choice([-1.0, 1.0])) * (0.5 if self.continuous else 1.0)
        return [self.shown]

    def advance(self, action: Any) -> Outcome:
        if self.continuous:
            reward = -((float(np.asarray(action).item()) - self.shown) ** 2)
        else:
            reward = 1.0 if int(action) == int(self.shown > 0) else -1.0
        return [self.shown], reward, True, False


class TimeLimitRingProbe(Probe):
    """A ring of `length` states, one-hot, reward 1 a step, one round per episode, ending in the first state.

    Cut by a time limit, V = 1 / (1 - g) everywhere; with `terminal`,
    V(k) = (1 - g ** (length - k)) / (1 - g). Fails when truncation and termination are confused.

    With `surprising` any later round may also be the last. A policy with memory needs that: if the limit always came
    after the same history, none that goes beyond would ever be learned from, and nothing would say what it is worth.
    """

    def __init__(
        self, length: int = 8, *, terminal: bool = False, surprising: bool = False, continuous: bool = False
    ) -> None:
        super().__init__(observation_size=length, continuous=continuous)
        self.length = length
        self.terminal = terminal
        self.surprising = surprising

    def start(self) -> Sequence[float]:
        return self._state(0)

    def advance(self, action: Any) -> Outcome:
        over = self.elapsed % self.length == 0 and not (self.surprising and self.np_random.random() < 0.5)
        state = self._state(self.elapsed % self.length)
        return state, 1.0, over and self.terminal, over and not self.terminal

    def _state(self, index: int) -> list[float]:
        return [float(position == index) for position in range(self.length)]


class AutoresetCanaryProbe(Probe):
    """Observations 1, 2, ... `length`, then -1 at the end; the reward is the observation acted upon.

    Only a start shows 1 and only an end shows -1, so an observation acted upon is never -1 and a next
    observation is never 1. V(k) = sum of j * g ** (j - k) for j = k ... length when terminated; with
    `truncate`, g ** (length + 1 - k) * V(-1) is added. Fails when a vector env's reset is taken for a step.
    """

    def __init__(self, length: int = 3, *, truncate: bool = False, continuous: bool = False) -> None:
        super().__init__(continuous=continuous)
        self.length = length
        self.truncate = truncate

    def start(self) -> Sequence[float]:
        return [1.0]

    def advance(self, action: Any) -> Outcome:
        over = self.elapsed == self.length
        observation = -1.0 if over else self.elapsed + 1.0
        return [observation], float(self.elapsed), over and not self.truncate, over and self.truncate


class EnvIndexProbe(Probe):
    """One step, shows `index` and pays it: V(i) = i. Fails when the envs of a vector are mixed up."""

    def __init__(self, index: int, *, continuous: bool = False) -> None:
        super().__init__(continuous=continuous)
        self.index = index

    def start(self) -> Sequence[float]:
        return [float(self.index)]

    def advance(self, action: Any) -> Outcome:
        return [float(self.index)], float(self.index), True, False


class CueMemoryProbe(Probe):
    """A cue, -1 or +1, is shown once; `delay` blank steps later (and only then) action 0 or 1 must match it.

    Reward 1 for the match, 0 else. Without memory nothing beats 1/2. Fails when memory is lost, or not trained through.
    """

    def __init__(self, delay: int = 3) -> None:
        super().__init__(observation_size=2)
        self.delay = delay

    def start(self) -> Sequence[float]:
        self.cue = float(self.np_random.choice([-1.0, 1.0]))
        return [self.cue, 0.0]

    def advance(self, action: Any) -> Outcome:
        over = self.elapsed == self.delay + 1
        right = int(action) == int(self.cue > 0)
        return [0.0, float(self.elapsed == self.delay)], float(over and right), over, False


class CueRingProbe(Probe):
    """A cue, -1 or +1, is shown once and pays itself at every step, also beyond the time limit: V = cue / (1 - g).

    Any step may be the last. Fails when the value behind a time limit is taken without the memory of what led there:
    that is 0 on average.
    """

    def start(self) -> Sequence[float]:
        self.cue = float(self.np_random.choice([-1.0, 1.0]))
        return [self.cue]

    def advance(self, action: Any) -> Outcome:
        return [0.0], self.cue, False, bool(self.np_random.random() < 0.25)


def probe_vector_env(
    probe: Callable[..., gym.Env[Any, Any]],
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    **parameters: Any,
) -> SyncVectorEnv:
    """Probes side by side in either autoreset mode; each `EnvIndexProbe` gets its own index."""
    makers = [
        partial(probe, **({"index": index} if probe is EnvIndexProbe else {}), **parameters)
        for index in range(num_envs)
    ]
    return SyncVectorEnv(makers, autoreset_mode=autoreset_mode)
