"""EnvPool's envs, stepped by C++ threads, as a vector env that can be seeded again (`vector_backend: envpool`).

EnvPool takes a seed only when a pool is made, so a seeded reset makes a new pool: a run stays a function of its seed,
and a resumed run is exact. The package is optional and imported when it is first needed.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rl_training.errors import EnvError


def is_installed() -> bool:
    return find_spec("envpool") is not None


@cache
def known_ids() -> frozenset[str]:
    """The ids that the installed EnvPool has."""
    return frozenset(_envpool().list_all_envs())


class EnvPoolVector(VectorEnv[Any, Any, Any]):
    """`num_envs` envs of one pool, in the order of their numbers. An env resets in the step after its episode."""

    def __init__(self, spec: EnvSpec, num_envs: int, options: dict[str, Any]):
        self.spec, self.num_envs = spec, num_envs
        self._options = {"max_episode_steps": spec.max_episode_steps} if spec.max_episode_steps else {}
        self._options |= options
        self._pool = self._made(0)
        self.single_observation_space = _supported(self._pool.observation_space)
        actions = _supported(self._pool.action_space)
        self._action_dtype = np.int32 if isinstance(actions, gym.spaces.Discrete) else actions.dtype
        # Gymnasium's MuJoCo envs take float32, EnvPool's float64. An agent is judged in one of Gymnasium's.
        boxed = isinstance(actions, gym.spaces.Box)
        self.single_action_space = gym.spaces.Box(actions.low, actions.high, dtype=np.float32) if boxed else actions
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """With a seed, env i starts from `seed` + i in a new pool; without one, the pool continues its own."""
        if seed is not None:
            if not isinstance(seed, (int, np.integer)):
                raise EnvError(f"an EnvPool takes one seed for all its envs, not {type(seed).__name__}")
            self._close_pool()
            self._pool = self._made(int(seed))
        observations, _ = self._pool.reset()
        return observations, {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self._pool.step(np.asarray(actions, self._action_dtype))
        # A time limit that is reached in the very step in which the episode terminates is no truncation.
        return observations, rewards, terminated, truncated & ~terminated, _own_infos(infos)

    def close_extras(self, **options: Any) -> None:
        self._close_pool()

    def _made(self, seed: int) -> Any:
        assert self.spec is not None
        return _envpool().make(
            self.spec.id, env_type="gymnasium", num_envs=self.num_envs, seed=seed % 2**31, **self._options
        )

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _envpool() -> ModuleType:
    import envpool

    module: ModuleType = envpool
    return module


def _own_infos(infos: dict[str, Any]) -> dict[str, Any]:
    """What the env says, one entry per env, without EnvPool's bookkeeping."""
    return {name: value for name, value in infos.items() if name not in ("env_id", "players", "elapsed_step")}


def _supported(space: Any) -> Any:
    if not isinstance(space, (gym.spaces.Box, gym.spaces.Discrete)):
        raise EnvError(f"an EnvPool with a {type(space).__name__} space is not supported: use another vector_backend")
    return space
