"""Probe envs: a test kit for people who write algorithms.

A probe is an env so small that the true values are known, built to expose one kind of bug. Start with
`ConstantRewardProbe` and go down the list: the first probe that an algorithm does not solve says where to look.

====================== ======================================= ===============================================
probe                  an algorithm solves it if it learns     if not, look at
====================== ======================================= ===============================================
ConstantRewardProbe    V = 1                                   the value loss and its optimizer
ObservationRewardProbe V(o) = o                                how observations reach the network
DelayedRewardProbe     V(k) = g ** (length - 1 - k)            discounting and n-step returns
ActionChoiceProbe      the action that pays                    the sign and the scale of the policy gradient
ContinuousBanditProbe  the action `target`                     the scaling of actions
MatchObservationProbe  the action that the observation names   how actions and observations are paired
TimeLimitRingProbe     V of a task that never ends             truncation that is treated as termination
AutoresetCanaryProbe   V of a short chain                      resets of a vector env that are taken for steps
EnvIndexProbe          V(i) = i                                envs of a vector that are mixed up
CueMemoryProbe         to repeat a cue seen some steps before  memory that is lost or not trained through time
CueRingProbe           V = cue / (1 - g)                       bootstrapping without the policy's memory
====================== ======================================= ===============================================

Values are for discount g. Where the action does not matter, `continuous` chooses between Discrete(2) and a Box in
[-1, 1], so that every algorithm can take the probe. A step after the end of an episode raises RuntimeError: the
caller must reset the probe.

The probes need nothing but Gymnasium. Here is TD(0) on a table, checked against the values of a chain:

>>> env, gamma, values = DelayedRewardProbe(length=3), 0.5, [0.0, 0.0, 0.0, 0.0]
>>> for _ in range(50):
...     observation, _ = env.reset()
...     over = False
...     while not over:
...         state = int(observation[0])
...         observation, reward, terminated, truncated, _ = env.step(0)
...         target = reward + (0.0 if terminated else gamma * values[int(observation[0])])
...         values[state] += 0.5 * (target - values[state])
...         over = terminated or truncated
>>> [round(value, 3) for value in values[:3]]
[0.25, 0.5, 1.0]

docs/testing-algorithms.md shows them with the algorithms of this library.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from rl_training.envs.env_types import EnvMaker

__all__ = [
    "ActionChoiceProbe",
    "AutoresetCanaryProbe",
    "ConstantRewardProbe",
    "ContinuousBanditProbe",
    "CueMemoryProbe",
    "CueRingProbe",
    "DelayedRewardProbe",
    "EnvIndexProbe",
    "MatchObservationProbe",
    "ObservationRewardProbe",
    "Probe",
    "TimeLimitRingProbe",
    "probe_vector_env",
]

Outcome = tuple[Sequence[float], float, bool, bool]
"""Next observation, reward, terminated, truncated."""


class Probe(gym.Env[NDArray[np.float32], Any]):
    """Base class. A probe of your own defines `start` and `advance`."""

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
        """The outcome of this action; `elapsed` already counts it."""
        raise NotImplementedError


class ConstantRewardProbe(Probe):
    """One step, reward 1: V = 1.

    Exposes a value loss that is computed wrongly, or an optimizer that does not step.
    """

    def start(self) -> Sequence[float]:
        return [0.0]

    def advance(self, action: Any) -> Outcome:
        return [0.0], 1.0, True, False


class ObservationRewardProbe(Probe):
    """One step. The observation is -1 or +1 and is paid as the reward: V(o) = o.

    Exposes observations that are lost, shuffled or normalized away before they reach the network.
    """

    def start(self) -> Sequence[float]:
        self.shown = float(self.np_random.choice([-1.0, 1.0]))
        return [self.shown]

    def advance(self, action: Any) -> Outcome:
        return [self.shown], self.shown, True, False


class DelayedRewardProbe(Probe):
    """`length` steps. The observation counts the steps, the last step pays 1: V(k) = g ** (length - 1 - k).

    Exposes wrong discounting, and n-step returns with a wrong number of steps.
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
    """One step, two actions: `good_action` pays 1, the other one -1.

    Exposes a policy gradient with the wrong sign, and advantages that belong to another action.
    """

    def __init__(self, good_action: int = 1) -> None:
        super().__init__()
        self.good_action = good_action

    def start(self) -> Sequence[float]:
        return [0.0]

    def advance(self, action: Any) -> Outcome:
        return [0.0], 1.0 if int(action) == self.good_action else -1.0, True, False


class ContinuousBanditProbe(Probe):
    """One step, reward -(a - target) ** 2 for an action in [low, high].

    Exposes actions that are scaled wrongly on the way to the env: the best one is neither the center nor a bound.
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
    """One step. The action must match the observation.

    Discrete: -1 asks for action 0 and +1 for action 1; a match pays 1, anything else -1. Continuous: the observation
    is -0.5 or 0.5 and the reward is -(a - observation) ** 2.

    Exposes actions that are stored or learned together with the observation of another step.
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
    """A ring of `length` states, one-hot, reward 1 per step. An episode is one round and ends in the first state.

    The end is a time limit, so V = 1 / (1 - g) everywhere. With `terminal` it is a termination:
    V(k) = (1 - g ** (length - k)) / (1 - g).

    Exposes truncation that is treated as termination, and the reverse.

    With `surprising`, an episode ends after each round with probability 1/2. A policy with memory needs that: if the
    limit always came after the same history, no longer history would ever be learned from, and its value would be
    arbitrary.
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
    """Observations 1, 2, ... `length`, then -1 at the end. The reward is the observation before the step.

    Only a start shows 1 and only an end shows -1, so no action is ever chosen at -1 and no next observation is ever 1.
    V(k) = sum of j * g ** (j - k) for j = k ... length; with `truncate`, g ** (length + 1 - k) * V(-1) is added.

    Exposes the reset of a vector env that is taken for a step, in either autoreset mode.
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
    """One step. Shows `index` and pays it: V(i) = i.

    Exposes rows of a vector env that are mixed up, as by a reshape with the axes in the wrong order.
    """

    def __init__(self, index: int, *, continuous: bool = False) -> None:
        super().__init__(continuous=continuous)
        self.index = index

    def start(self) -> Sequence[float]:
        return [float(self.index)]

    def advance(self, action: Any) -> Outcome:
        return [float(self.index)], float(self.index), True, False


class CueMemoryProbe(Probe):
    """A cue, -1 or +1, is shown once. After `delay` blank steps, action 0 or 1 must match it.

    A match pays 1, anything else 0. Without memory no policy gets more than 1/2.

    Exposes memory that is lost between steps, or not trained through time.
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
    """A cue, -1 or +1, is shown once and paid at every step: V = cue / (1 - g). Every step may be cut by a time limit.

    Exposes a bootstrap value at a time limit that is computed without the memory of the episode: it is 0 on average.
    """

    def start(self) -> Sequence[float]:
        self.cue = float(self.np_random.choice([-1.0, 1.0]))
        return [self.cue]

    def advance(self, action: Any) -> Outcome:
        return [0.0], self.cue, False, bool(self.np_random.random() < 0.25)


def probe_vector_env(
    probe: EnvMaker,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    **parameters: Any,
) -> SyncVectorEnv:
    """Probes side by side in either autoreset mode. Each `EnvIndexProbe` gets its own index."""
    makers = [
        partial(probe, **({"index": index} if probe is EnvIndexProbe else {}), **parameters)
        for index in range(num_envs)
    ]
    return SyncVectorEnv(makers, autoreset_mode=autoreset_mode)
