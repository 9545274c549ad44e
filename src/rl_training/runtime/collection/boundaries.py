"""What the end of an episode looks like in each autoreset mode, in terms that do not depend on the mode.

Both classes answer the same question about one vector step: which observation truly followed each row, which rows are
transitions, and which envs now show the first observation of an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.envs.failures import LAST_INFOS
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.runtime.collection.info_numbers import info_of_row

Resolved = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Successor observations [N, ...], valid rows [N], episode starts [N]. A plain tuple: one is made in every step."""

Count = int | np.integer[Any]  # as np.count_nonzero returns it


class Boundaries(Protocol):
    """How a vector env that resets itself reports the end of an episode."""

    every_env: np.ndarray  # the mask of a step in which all rows are valid; read-only, shared by all such steps
    skipped_rows: int  # rows since the last reset that are not transitions, because they are resets

    def reset(self) -> None:
        """Every env starts a new episode."""

    def resolve(self, obs: np.ndarray, done: np.ndarray, num_done: Count, infos: dict[str, Any]) -> Resolved:
        """`obs` is what the env returned, encoded; `done` marks the `num_done` envs whose episode ended."""

    def last_info(self, infos: dict[str, Any], env: int) -> Mapping[str, Any]:
        """The last info of the episode that ended in this step in `env`; empty if the vector env does not give it."""


class SameStepBoundaries:
    """An env resets within the step that ends its episode.

    The step returns the first observation of the next episode; the last one of the old episode is in
    `infos["final_obs"]`. Every row is a transition.
    """

    def __init__(self, envs: VectorEnv, spaces: Spaces):
        self.every_env = _every_env(envs.num_envs)
        self.skipped_rows = 0
        self._spaces, self._env_name = spaces, type(envs.unwrapped).__name__

    def reset(self) -> None:
        pass

    def resolve(self, obs: np.ndarray, done: np.ndarray, num_done: Count, infos: dict[str, Any]) -> Resolved:
        if num_done:
            return self._with_final_observations(obs, done, infos), self.every_env, done
        return obs, self.every_env, done

    def last_info(self, infos: dict[str, Any], env: int) -> Mapping[str, Any]:
        last = infos.get(LAST_INFOS)
        if last is not None:  # of our own vector envs: the very dict that the env returned
            info: Mapping[str, Any] = last[env]
            return info
        final = infos.get("final_info")
        if isinstance(final, Mapping):
            return info_of_row(final, env)
        # Older vector envs have an array of dicts. The infos beside it belong to the next episode.
        row = final[env] if isinstance(final, (np.ndarray, list, tuple)) and len(final) > env else None
        return row if isinstance(row, Mapping) else {}

    def _with_final_observations(self, obs: np.ndarray, done: np.ndarray, infos: dict[str, Any]) -> np.ndarray:
        if "final_obs" not in infos:
            raise EnvError(
                f"vector env {self._env_name} ended an episode without infos['final_obs']: "
                "same-step autoreset must return the last observation of the episode there"
            )
        final = infos["final_obs"]
        next_obs = obs.copy()
        if isinstance(final, np.ndarray) and final.dtype != object:
            next_obs[done] = self._spaces.encode(final)[done]
        else:
            for env in np.flatnonzero(done):
                next_obs[env] = self._spaces.encode_one(final[env])
        return next_obs


class NextStepBoundaries:
    """An env resets in the step after the one that ends its episode.

    The last step returns the last observation of the episode. The next step ignores its action and returns the first
    observation of the next episode: that row is not a transition.
    """

    def __init__(self, envs: VectorEnv):
        self.every_env = _every_env(envs.num_envs)
        self.reset()

    def reset(self) -> None:
        self.skipped_rows = 0
        self._awaits_reset = np.zeros(len(self.every_env), bool)

    def resolve(self, obs: np.ndarray, done: np.ndarray, num_done: Count, infos: dict[str, Any]) -> Resolved:
        starts, self._awaits_reset = self._awaits_reset, done
        self.skipped_rows += int(num_done)
        return obs, ~starts, starts

    def last_info(self, infos: dict[str, Any], env: int) -> Mapping[str, Any]:
        return info_of_row(infos, env)


def boundaries_for(mode: AutoresetMode, envs: VectorEnv, spaces: Spaces) -> Boundaries:
    """The class for the autoreset mode of `envs`."""
    return NextStepBoundaries(envs) if mode is AutoresetMode.NEXT_STEP else SameStepBoundaries(envs, spaces)


def _every_env(num_envs: int) -> np.ndarray:
    mask = np.ones(num_envs, bool)
    mask.flags.writeable = False
    return mask
