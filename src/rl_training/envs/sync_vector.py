"""The `sync` backend: envs are stepped one after the other in this process.

An env that raises ends the run with an error that has everything needed to replay the failure.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from rl_training.envs.env_closer import close_all
from rl_training.envs.env_runner import EnvRunner
from rl_training.envs.env_types import EnvMaker
from rl_training.envs.failures import LAST_INFOS, ActionHistory, EnvFailed, reason_of, trace_of
from rl_training.errors import EnvError, raise_interrupts

if TYPE_CHECKING:
    _SyncVectorEnv = SyncVectorEnv[Any, Any]
else:  # before Gymnasium 1.4 it takes no type arguments
    _SyncVectorEnv = SyncVectorEnv


class SyncVector(_SyncVectorEnv):
    """Gymnasium's SyncVectorEnv in same-step mode, with a record of the actions that led to a failure."""

    def __init__(self, makers: Sequence[EnvMaker]):
        super().__init__(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        if len({id(env.unwrapped) for env in self.envs}) < self.num_envs:
            raise EnvError(
                "env: its function returns the same object again; make a new one in each call, or set num_envs=1"
            )
        self._runners = [EnvRunner(env) for env in self.envs]
        self._history = ActionHistory(self.num_envs)
        self._observations: list[Any] = [None] * self.num_envs
        self._plain = isinstance(self.single_observation_space, gym.spaces.Box)
        self._batch: Any = create_empty_array(self.single_observation_space, n=self.num_envs, fn=np.zeros)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seeds = seeds_of(seed, self.num_envs)
        self._history.begin(seeds)
        infos: dict[str, Any] = {}
        for index, runner in enumerate(self._runners):
            try:
                self._observations[index], info = runner.reset(seeds[index], options)
            except BaseException as error:
                raise_interrupts(error)
                raise self._failed(index, "reset", error) from error
            infos = self._add_info(infos, info, index)
        return self._observe(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._history.add(actions)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        infos: dict[str, Any] = {}
        # The rows of an array are the actions; Gymnasium's `iterate` would cost a third of a small env's step.
        rows = actions if isinstance(actions, np.ndarray) else iterate(self.action_space, actions)
        for index, action in enumerate(rows):
            try:
                self._observations[index], rewards[index], over, cut, info, final = self._runners[index].step(action)
            except BaseException as error:
                raise_interrupts(error)
                raise self._failed(index, "step", error) from error
            if final is not None:
                terminated[index], truncated[index] = over, cut
                infos = self._add_info(infos, {"final_obs": final[0], "final_info": final[1]}, index)
                infos.setdefault(LAST_INFOS, {})[index] = final[1]  # as it is: arrays would cut 0.5 to an integer
                self._history.episode(index, final[2])
            if info:
                infos = self._add_info(infos, info, index)
        return self._observe(), rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        close_all(*(env.close for env in getattr(self, "envs", ())))  # none if an env could not be made

    def _observe(self) -> Any:
        if self._plain:
            return np.array(self._observations, self.single_observation_space.dtype)
        self._batch = concatenate(self.single_observation_space, self._observations, self._batch)
        return copy.deepcopy(self._batch)

    def _failed(self, index: int, call: str, error: BaseException) -> EnvFailed:
        return EnvFailed(self._history.failure(index, call, reason_of(error), trace_of(error)))


def seeds_of(seed: Any, num_envs: int) -> list[int | None]:
    """One seed per env as in Gymnasium: `seed`, `seed` + 1, ..."""
    if seed is None:
        return [None] * num_envs
    seeds = [seed + index for index in range(num_envs)] if isinstance(seed, int) else list(seed)
    if len(seeds) != num_envs:
        raise ValueError(f"got {len(seeds)} seeds for {num_envs} envs")
    return seeds
