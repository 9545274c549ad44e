"""One env, stepped with autoreset and checked: the same code for `sync`, for `async` workers and for crash replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.failures import LAST_INFOS, RESTARTED, EnvFailed, EnvFailure, reason_of, trace_of
from rl_training.errors import RLTrainingError, raise_interrupts

Final = tuple[Any, dict[str, Any], dict[str, Any] | None]
Outcome = tuple[Any, float, bool, bool, dict[str, Any], Final | None]


class EnvRunner:
    """Steps one env, checks its observations and resets it when an episode ends."""

    def __init__(self, env: gym.Env[Any, Any]):
        self.env = env
        self._space = env.observation_space
        self._shape, self._dtype = self._space.shape, self._space.dtype

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        check_observation(observation, self._space)
        return observation, info if type(info) is dict and not info else checked_info(info)

    def step(self, action: Any) -> Outcome:
        """Observation, reward, terminated, truncated, info, and `final` where this step ended the episode.

        In that case observation and info belong to the next episode, and `final` has the last observation, its info,
        and the state of the env's random generator before the reset (if it has one).
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        if type(observation) is not np.ndarray or observation.shape != self._shape or observation.dtype != self._dtype:
            check_observation(observation, self._space)
        if type(info) is not dict or info:
            info = checked_info(info)
        if not (terminated or truncated):
            return observation, float(reward), False, False, info, None
        # A copy: an env may keep one dict and fill it anew when it resets.
        final = (observation, dict(info), random_state(self.env))
        observation, info = self.reset()
        return observation, float(reward), bool(terminated), bool(truncated), info, final


def check_observation(value: Any, space: gym.Space[Any], name: str = "observation") -> None:
    """Raise if an observation does not fit into an array of its space: another shape, or another kind of numbers."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(value, dict) or value.keys() != space.spaces.keys():
            raise TypeError(f"{name} is not a dict with the keys {', '.join(map(str, space.spaces))}")
        for key, inner in space.spaces.items():
            check_observation(value[key], inner, f"{name}[{key!r}]")
    elif isinstance(space, gym.spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            raise TypeError(f"{name} is not a tuple of {len(space.spaces)}")
        for index, inner in enumerate(space.spaces):
            check_observation(value[index], inner, f"{name}[{index}]")
    elif space.shape is not None and space.dtype is not None:
        array = np.asarray(value)
        if array.shape != space.shape:
            raise ValueError(f"{name} has shape {array.shape}, its space has {space.shape}")
        if array.dtype != space.dtype and not np.can_cast(array.dtype, space.dtype, "same_kind"):
            raise TypeError(f"{name} has dtype {array.dtype}, its space has {space.dtype}")


def checked_info(info: Any) -> dict[str, Any]:
    """The info of an env as a dict; None is an empty one. Our own names in it would pass for a broken env."""
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise TypeError(f"info is of type {type(info).__name__}, it must be a dict")
    for name in (LAST_INFOS, RESTARTED):
        if name in info:
            raise ValueError(f"info has the key {name}, which belongs to rl_training: use another name")
    return info if type(info) is dict else dict(info)


def random_state(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    # Not `np_random`: reading that creates a generator if there is none.
    generator = getattr(env.unwrapped, "_np_random", None)
    return dict(generator.bit_generator.state) if isinstance(generator, np.random.Generator) else None


def set_random_state(env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    env.unwrapped.np_random.bit_generator.state = state


class WatchedEnv:
    """One env for evaluation or play, without autoreset. An exception of the env becomes one line with its actions."""

    def __init__(self, env: gym.Env[Any, Any]):
        self.env = env
        self.seed: int | None = None
        self.actions: list[Any] = []

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self.seed, self.actions = seed, []
        try:
            observation, info = self.env.reset(seed=seed)
            return observation, checked_info(info)
        except (RLTrainingError, gym.error.DependencyNotInstalled):
            raise
        except BaseException as error:
            raise_interrupts(error)
            raise self._failed("reset", error) from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            return observation, float(reward), bool(terminated), bool(truncated), checked_info(info)
        except (RLTrainingError, gym.error.DependencyNotInstalled):
            raise
        except BaseException as error:
            raise_interrupts(error)
            raise self._failed("step", error) from error

    def render(self) -> Any:
        try:
            return self.env.render()
        except (RLTrainingError, gym.error.DependencyNotInstalled):
            raise
        except BaseException as error:
            raise_interrupts(error)
            raise self._failed("render", error) from error

    def _failed(self, call: str, error: BaseException) -> EnvFailed:
        actions = [np.asarray(action).tolist() for action in self.actions]
        failure = EnvFailure(
            reason_of(error),
            call,
            seed=self.seed,
            episode_step=len(actions),
            last_action=actions[-1] if actions else None,
            actions=actions,
            trace=trace_of(error),
            in_evaluation=True,
        )
        return EnvFailed(failure)
