"""Goal environments: a Dict observation with `achieved_goal` and `desired_goal`, and rewards that follow from the two.

The convention is that of gymnasium-robotics. `env.unwrapped.compute_reward(achieved, desired, info)` takes one goal or
a batch of them and depends on nothing else. `compute_terminated` is the same for the end of an episode, if the env
ends episodes because of their goal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError, raise_interrupts
from rl_training.text import describe_error

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
_SETTING = "algo_kwargs.hindsight"
WITHOUT = f"or set {_SETTING}=0"


@dataclass(frozen=True)
class GoalColumns:
    """Where the goals are in an encoded observation, and their shape in the env."""

    achieved: slice
    desired: slice
    shape: tuple[int, ...]

    @classmethod
    def of(cls, spaces: Spaces) -> GoalColumns:
        """The columns of a goal env; EnvError if these spaces are not those of one."""
        space = spaces.observation_space
        if not isinstance(space, gym.spaces.Dict) or not {ACHIEVED, DESIRED} <= set(space.spaces):
            raise EnvError(
                f"{_SETTING} needs a Dict observation with {ACHIEVED!r} and {DESIRED!r}: use a goal env, {WITHOUT}"
            )
        if spaces.images:
            raise EnvError(
                f"{_SETTING} cannot replace goals beside images: leave {spaces.images[0].name} out with "
                f"env_kwargs.observation_keys, {WITHOUT}"
            )
        achieved, desired = space[ACHIEVED], space[DESIRED]
        plain = (gym.spaces.Box, gym.spaces.MultiBinary)
        if not (isinstance(achieved, plain) and isinstance(desired, plain)) or achieved.shape != desired.shape:
            raise EnvError(f"{_SETTING} needs goals that are Boxes of one shape: correct the env, {WITHOUT}")
        assert achieved.shape is not None
        return cls(spaces.columns_of(ACHIEVED), spaces.columns_of(DESIRED), achieved.shape)


class GoalRules:
    """The reward and the end that an env gives for goals, in batches of encoded goals [B, G]."""

    def __init__(self, env: Any, columns: GoalColumns) -> None:
        self._shape = columns.shape
        self._reward = _method(env, "compute_reward")
        if self._reward is None:
            raise EnvError(
                f"{_SETTING} needs compute_reward(achieved_goal, desired_goal, info), but "
                f"{type(getattr(env, 'unwrapped', env)).__name__} has none: add it, {WITHOUT}"
            )
        self._terminated = _method(env, "compute_terminated")
        self._by_rows = False

    @property
    def ends_episodes(self) -> bool:
        """Whether the env says which goals end an episode."""
        return self._terminated is not None

    def rewards(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """float32 [B]"""
        assert self._reward is not None
        try:
            found = np.asarray(self._reward(self._goals(achieved), self._goals(desired), {}), np.float32)
        except BaseException as error:
            raise_interrupts(error)
            raise EnvError(f"compute_reward failed for {len(achieved)} goals: {describe_error(error)}") from error
        if found.shape != (len(achieved),):
            raise EnvError(
                f"compute_reward returned shape {found.shape} for {len(achieved)} goals: write it for batches "
                f"(axis=-1), {WITHOUT}"
            )
        return found

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """bool [B]"""
        try:
            return self._ends(self._goals(achieved), self._goals(desired))
        except BaseException as error:
            raise_interrupts(error)
            raise EnvError(f"compute_terminated failed for {len(achieved)} goals: {describe_error(error)}") from error

    def _ends(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        assert self._terminated is not None
        if not self._by_rows:
            found = np.asarray(self._terminated(achieved, desired, {}))
            if found.shape == (len(achieved),):
                return found.astype(bool)
            self._by_rows = True  # written for one goal at a time, as in gymnasium-robotics
        rows = [bool(self._terminated(*pair, {})) for pair in zip(achieved, desired, strict=True)]
        return np.array(rows, bool)

    def check(self, achieved: np.ndarray, desired: np.ndarray) -> None:
        """EnvError unless rewards are the same a second time, and the same in a batch as alone."""
        # Each row again with its goal reached, so that a batch has several rows and several rewards.
        achieved, desired = np.concatenate([achieved, achieved]), np.concatenate([desired, achieved])
        found = self.rewards(achieved, desired)
        if not np.array_equal(found, self.rewards(achieved, desired)):
            raise EnvError(
                f"compute_reward is not pure: for the same goals it gives another reward, correct it {WITHOUT}"
            )
        alone = [self.rewards(achieved[i : i + 1], desired[i : i + 1])[0] for i in range(len(achieved))]
        if not np.allclose(found, alone, atol=1e-5):
            raise EnvError(f"compute_reward gives other rewards in a batch than alone: correct it {WITHOUT}")

    def check_outcome(
        self, achieved: np.ndarray, desired: np.ndarray, found: np.ndarray, given: np.ndarray, terminated: np.ndarray
    ) -> None:
        """EnvError unless the env itself gave the rewards `found` by the rules, and ended episodes by them."""
        wrong = np.flatnonzero(~np.isclose(found, given, atol=1e-4, rtol=1e-4))
        if len(wrong):
            raise EnvError(
                f"compute_reward says {found[wrong[0]]:g} where the env gave {given[wrong[0]]:g}: make the two agree "
                f"(no wrapper may change rewards), {WITHOUT}"
            )
        if self.ends_episodes and (self.terminated(achieved, desired) & ~terminated).any():
            raise EnvError(f"compute_terminated ends an episode that the env continued: make the two agree, {WITHOUT}")

    def _goals(self, encoded: np.ndarray) -> np.ndarray:
        return encoded.reshape(len(encoded), *self._shape)


def goal_rules(envs: VectorEnv[Any, Any, Any], columns: GoalColumns) -> GoalRules:
    """The rules of the envs that a run steps."""
    whole: Any = envs.unwrapped
    if getattr(whole, "compute_reward", None) is not None:  # a vector class of its own
        return GoalRules(whole, columns)
    if getattr(whole, "envs", None):
        return GoalRules(whole.envs[0], columns)
    make: Callable[[], Any] | None = getattr(whole, "local_env", None)
    if make is None:
        raise EnvError(
            f"{_SETTING} needs compute_reward, which {type(whole).__name__} does not show: add it there, {WITHOUT}"
        )
    return GoalRules(make(), columns)


def _method(env: Any, name: str) -> Callable[..., Any] | None:
    if isinstance(env, gym.Env):
        method = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    else:
        method = getattr(env, name, None)
    return method if callable(method) else None
