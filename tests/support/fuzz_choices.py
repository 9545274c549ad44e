"""Envs with odd action masks and odd goals, for cases of the fuzzer: `fuzz_choices:ForbidsAll-v0` and the like."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np

from fuzz_envs import Calm, RustPanic, WithoutText


class Masks(Calm):
    """Its mask is from a method, and allows everything."""

    mask: Any = (True, True)

    def action_masks(self) -> Any:
        return self.mask


class ForbidsAll(Masks):
    mask = (False, False)


class MasksTooMuch(Masks):
    mask = (True,) * 1000


class MasksWithText(Masks):
    mask = ("\x1b[31m", "yes")


class MasksRaggedly(Masks):
    mask = ([True], [True, [False]])


class MasksWithNaN(Masks):
    mask = (float("nan"), 0.0)


class MasksWithNothing(Masks):
    mask = None


class MasksWithObjects(Masks):
    mask = (WithoutText(), 10**400)


class ExitsInMask(Masks):
    def action_masks(self) -> Any:
        sys.exit(0)


class PanicsInMask(Masks):
    def action_masks(self) -> Any:
        raise RustPanic("index out of bounds")


class InfoMask(Calm):
    """Its mask is in the info, from the second step on."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"action_mask": [1, 0]}


class ObservesAMask(Calm):
    """Its mask is in the observation, where it has another length than the actions."""

    observation_space = gym.spaces.Dict(
        {"state": gym.spaces.Box(-1, 1, (2,), np.float32), "action_mask": gym.spaces.MultiBinary(5)}
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), *super().step(action)[1:]

    def _seen(self) -> Any:
        return {"state": np.zeros(2, np.float32), "action_mask": np.ones(5, np.int8)}


class Goals(Calm):
    """The goal is a number, and each step adds one to what is achieved."""

    observation_space = gym.spaces.Dict(
        {name: gym.spaces.Box(0, 10, (1,), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        terminated = super().step(action)[2]
        seen = self._seen()
        reward = -float(np.abs(seen["achieved_goal"] - seen["desired_goal"]).sum())
        return seen, reward, False, terminated, {}

    def _seen(self) -> Any:
        elapsed = np.float32([self.elapsed])
        return {"observation": elapsed, "achieved_goal": elapsed, "desired_goal": np.float32([7])}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired).sum(-1)


class ExitsInReward(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        sys.exit(0)


class PanicsInReward(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        raise RustPanic("index out of bounds")


class RewardsGoalsWithText(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return "\x1b[31mred"


class RewardsGoalsWithNaN(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.full(len(achieved), np.nan)


class RewardsOtherwise(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.ones(len(achieved))


class RaisesInTerminated(Goals):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        raise WithoutText


class ExitsInTerminated(Goals):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        sys.exit(0)


class TerminatesWithText(Goals):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return "\x1b[31mred"


class TerminatesWithObjects(Goals):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return [[WithoutText()]] * len(achieved)


def _names(base: type) -> list[str]:
    return [name for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, base)]


MASKS = [*_names(Masks), "InfoMask", "ObservesAMask"]
GOALS = _names(Goals)
for name in (*MASKS, *GOALS):
    gym.register(f"{name}-v0", globals()[name])
