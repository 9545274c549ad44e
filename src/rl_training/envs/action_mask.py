"""Action masks: which discrete actions an env allows now, as the key `action_mask` of its observations.

An env may have that key itself, or a method `action_masks()`, or `info["action_mask"]`. The wrappers here put the last
two into the observation, so that a mask goes wherever its observation goes. `env_kwargs.action_masks` chooses:

auto    the key, or the method if there is one (the default)
info    `info["action_mask"]`
off     no masks; the key is removed from the observations
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from rl_training.envs.spaces import MASK_KEY
from rl_training.errors import ConfigError, EnvError
from rl_training.text import one_line

MASK_OPTION = "action_masks"
OBSERVATION_KEY = "observation"
NEAR_KEY = "action_masks"  # what MASK_KEY is called by mistake; the method has this name
SOURCES = ("auto", "info", "off")
_HIDDEN = "rl_training/masks_hidden"  # in the metadata of an env, which vector envs pass on
_CATEGORIES = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


def mask_source(env_kwargs: Mapping[str, Any]) -> str:
    """Where `env_kwargs` say that masks come from."""
    option = env_kwargs.get(MASK_OPTION, "auto")
    option = "off" if option is False else option  # YAML reads the word off as false
    if option not in SOURCES:
        raise EnvError(f"env_kwargs.{MASK_OPTION}: {option!r} is not valid, expected one of {', '.join(SOURCES)}")
    return str(option)


def masked_env(env: gym.Env[Any, Any], source: str) -> gym.Env[Any, Any]:
    """The env with its masks in its observations; the env itself if they are there already or if it has none."""
    if source == "off":
        return MaskRemoved(env)
    if _has_key(env.observation_space) or not isinstance(env.action_space, _CATEGORIES):
        if source == "info":
            raise EnvError(f"env_kwargs.{MASK_OPTION}: {_no_use(env)}, leave it out")
        return env
    if source == "info":
        return ActionMaskFromInfo(env)
    return ActionMaskFromMethod(env) if callable(_method_of(env)) else env


def masked_vector(envs: VectorEnv[Any, Any, Any], source: str) -> VectorEnv[Any, Any, Any]:
    """`masked_env` for a vector class, which cannot leave masks out."""
    if source == "off" and _has_key(envs.single_observation_space):
        raise EnvError(f"env_kwargs.{MASK_OPTION}: off needs vector_backend 'sync' or 'async'")
    return ActionMaskVector(envs) if source == "info" else envs


def unused_masks(envs: VectorEnv[Any, Any, Any], infos: Mapping[str, Any]) -> str | None:
    """What to do about masks that these envs, whose observations have none, show elsewhere; None if there are none."""
    if MASK_KEY in infos:
        return (
            f"info[{MASK_KEY!r}]: the env says which actions are allowed, but the run does not use it; set "
            f"env_kwargs.{MASK_OPTION}=info to use it, or =off to hide this line"
        )
    single = (getattr(envs.unwrapped, "envs", None) or [None])[0]
    single = single if isinstance(single, gym.Env) else None
    if single is not None and not isinstance(single, MaskRemoved) and callable(_method_of(single)):
        return (
            f"{MASK_OPTION}(): the envs say which actions are allowed, but the vector env that was passed does not "
            "show it; wrap each env in rl_training.envs.action_mask.ActionMaskFromMethod"
        )
    if (envs.metadata or {}).get(_HIDDEN):
        return None
    rows = infos.get(NEAR_KEY)
    # A vector env of the user's own may put anything there, such as an array without a dimension.
    first = rows[0] if isinstance(rows, (np.ndarray, list, tuple)) and np.shape(rows)[:1] > (0,) else None
    return _misnamed(envs.single_observation_space, envs.single_action_space, first, single)


def misnamed_mask(env: gym.Env[Any, Any], info: Mapping[str, Any]) -> str | None:
    """What to rename in an env without masks that has something like a mask; None if there is no such thing."""
    if (env.metadata or {}).get(_HIDDEN):
        return None
    return _misnamed(env.observation_space, env.action_space, info.get(NEAR_KEY), env)


def _misnamed(
    observations: gym.Space[Any], actions: gym.Space[Any], in_info: Any, env: gym.Env[Any, Any] | None
) -> str | None:
    if not isinstance(actions, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        return None
    hide = f"env_kwargs.{MASK_OPTION}=off hides this line"
    like = "looks like an action mask, but it is not read as one"
    size = mask_size(actions)
    key = observations.spaces.get(NEAR_KEY) if isinstance(observations, gym.spaces.Dict) else None
    if isinstance(key, (gym.spaces.Box, gym.spaces.MultiBinary)) and int(np.prod(key.shape)) == size:
        return f"the key {NEAR_KEY!r} of the observation {like}; rename it to {MASK_KEY!r} ({hide})"
    if in_info is not None and _fits(in_info, size):
        setting = f"set env_kwargs.{MASK_OPTION}=info"
        return f"info[{NEAR_KEY!r}] {like}; rename it to {MASK_KEY!r} and {setting} ({hide})"
    if env is not None and _needs_nothing(_method_without_calls(env, MASK_KEY)):
        return f"the method {MASK_KEY}() {like}; rename it to {NEAR_KEY}() ({hide})"
    return None


def _fits(mask: Any, size: int) -> bool:
    try:
        flat_mask(mask, size)
    except (EnvError, TypeError, ValueError):  # NumPy raises the last two for ragged lists and odd objects
        return False
    return True


def _needs_nothing(method: Any) -> bool:
    """Whether it can be called without arguments. Taxi's `action_mask(state)`, which its infos repeat, cannot."""
    try:
        inspect.signature(method).bind()
    except (TypeError, ValueError):
        return False
    return True


def with_mask(observation: Any, mask: Any, space: gym.Space[Any]) -> Any:
    """A raw observation, or a batch of them, with its mask, in the form of the space of an env with masks."""
    if not _has_key(space):
        raise ConfigError(f"{MASK_OPTION}: the agent was trained without action masks, leave them out")
    others = observation if isinstance(observation, Mapping) else {OBSERVATION_KEY: observation}
    return {**others, MASK_KEY: np.asarray(mask)}


class _Masked(gym.Wrapper[Any, Any, Any, Any]):
    """Adds the mask of `read_mask(info)` to each observation."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._size = mask_size(env.action_space)
        self.observation_space = _with_key(env.observation_space, self._size)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._joined(observation, flat_mask(self.read_mask(info), self._size)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        absent = terminated and self.may_be_absent(info)
        mask = np.ones(self._size, np.int8) if absent else flat_mask(self.read_mask(info), self._size)
        return self._joined(observation, mask), reward, terminated, truncated, info

    def may_be_absent(self, info: Mapping[str, Any]) -> bool:
        """Whether a terminated episode has left no mask."""
        return False

    def read_mask(self, info: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def _joined(self, observation: Any, mask: np.ndarray) -> dict[str, Any]:
        others = observation if isinstance(observation, Mapping) else {OBSERVATION_KEY: observation}
        return {**others, MASK_KEY: mask}


class ActionMaskFromMethod(_Masked):
    """An env whose method `action_masks()` says which actions are allowed now."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._read: Callable[[], Any] = _method_of(env)

    def read_mask(self, info: Mapping[str, Any]) -> Any:
        return self._read()


class ActionMaskFromInfo(_Masked):
    """An env whose `info["action_mask"]` says which actions are allowed now."""

    def may_be_absent(self, info: Mapping[str, Any]) -> bool:
        return MASK_KEY not in info

    def read_mask(self, info: Mapping[str, Any]) -> Any:
        if MASK_KEY not in info:
            raise EnvError(f"info has no {MASK_KEY!r}: return it from reset and from every step, or {_without()}")
        return info[MASK_KEY]


class MaskRemoved(gym.Wrapper[Any, Any, Any, Any]):
    """An env without masks in its observations and infos."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.metadata = {**(env.metadata or {}), _HIDDEN: True}
        self._from_observations = _has_key(env.observation_space)
        if self._from_observations:
            self.observation_space = gym.spaces.Dict(_without_key(env.observation_space))  # type: ignore[arg-type]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._observed(observation), _without_key(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._observed(observation), reward, terminated, truncated, _without_key(info)

    def _observed(self, observation: Any) -> Any:
        return _without_key(observation) if self._from_observations else observation


class ActionMaskVector(VectorWrapper):
    """A vector env whose `infos["action_mask"]` [N, actions] say which actions each env allows now.

    Under same-step autoreset, the masks of final observations are in `infos["final_info"]["action_mask"]`; without
    them, everything is allowed after termination, and truncation is an error.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._size = mask_size(env.single_action_space)
        self.single_observation_space = _with_key(env.single_observation_space, self._size)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        mode = (env.metadata or {}).get("autoreset_mode")
        self._same_step = mode in (AutoresetMode.SAME_STEP, AutoresetMode.SAME_STEP.value)

    def reset(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = self.env.reset(**options)
        return self._joined(observations, self._masks(infos, np.zeros(self.num_envs, bool))), infos

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = np.zeros(self.num_envs, bool) if self._same_step else np.asarray(terminated, bool)
        joined = self._joined(observations, self._masks(infos, over))
        if self._same_step and "final_obs" in infos:
            ends = np.asarray(terminated | truncated, bool)
            infos = {**infos, "final_obs": self._final(infos, ends, np.asarray(terminated, bool))}
        return joined, rewards, terminated, truncated, infos

    def _masks(self, infos: Mapping[str, Any], over: np.ndarray) -> np.ndarray:
        """The mask of every env; `over` marks those that need none."""
        given, masks = infos.get(MASK_KEY), np.ones((self.num_envs, self._size), np.int8)
        present = np.asarray(infos.get(f"_{MASK_KEY}", np.ones(self.num_envs, bool)), bool)
        for index in range(self.num_envs):
            if given is not None and present[index]:
                masks[index] = flat_mask(given[index], self._size)
            elif not over[index]:
                raise EnvError(f"infos has no {MASK_KEY!r} of env {index}: return it in every step, or {_without()}")
        return masks

    def _final(self, infos: Mapping[str, Any], ends: np.ndarray, terminated: np.ndarray) -> np.ndarray:
        final_infos, finals = infos.get("final_info"), np.full(self.num_envs, None, object)
        last = final_infos if isinstance(final_infos, Mapping) else {}
        # Envs that go on have no final observation, and an env that terminated needs no mask.
        masks = self._masks(last, ~ends | terminated)
        for index in np.flatnonzero(ends):
            finals[index] = self._joined(infos["final_obs"][index], masks[index])
        return finals

    def _joined(self, observations: Any, masks: np.ndarray) -> dict[str, Any]:
        others = observations if isinstance(observations, Mapping) else {OBSERVATION_KEY: observations}
        return {**others, MASK_KEY: masks}


def mask_size(space: gym.Space[Any]) -> int:
    """The number of entries of a mask for these actions; the choices of several stand side by side."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, gym.spaces.MultiBinary):
        return 2 * int(np.prod(space.shape))
    raise EnvError(f"action masks need discrete actions, but the env has {one_line(space, 200)}: {_without()}")


def flat_mask(mask: Any, size: int) -> np.ndarray:
    """A mask as zeros and ones; a tuple or list with one mask per choice is joined."""
    if mask is None:
        raise EnvError(f"an action mask is None: return one number per action, or {_without()}")
    if isinstance(mask, (tuple, list)) and mask and all(np.ndim(part) > 0 for part in mask):
        mask = np.concatenate([np.ravel(part) for part in mask])
    flat = np.asarray(mask)
    if flat.dtype.kind not in "biuf" or flat.size != size:
        raise EnvError(f"an action mask has {flat.size} entries of {flat.dtype}, but the env has {size} actions")
    if not np.isfinite(flat).all():
        raise EnvError("an action mask has NaN or infinity, which say neither yes nor no: use 0 and 1")
    zeros_and_ones: np.ndarray = (flat.reshape(size) != 0).astype(np.int8)
    return zeros_and_ones


def _with_key(space: gym.Space[Any], size: int) -> gym.spaces.Dict:
    others = dict(space.spaces) if isinstance(space, gym.spaces.Dict) else {OBSERVATION_KEY: space}
    return gym.spaces.Dict({**others, MASK_KEY: gym.spaces.MultiBinary(size)})


def _has_key(space: gym.Space[Any]) -> bool:
    return isinstance(space, gym.spaces.Dict) and MASK_KEY in space.spaces


def _without_key(items: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in items.items() if key != MASK_KEY}


def _method_of(env: gym.Env[Any, Any]) -> Any:
    return _attribute_of(env, "action_masks")


def _attribute_of(env: gym.Env[Any, Any], name: str) -> Any:
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None


def _method_without_calls(env: gym.Env[Any, Any], name: str) -> Any:
    """A method of an env or of one of its wrappers. Nothing of the env runs for it, as a property would."""
    while True:
        if isinstance(method := inspect.getattr_static(env, name, None), FunctionType):
            return method if name in vars(env) else MethodType(method, env)
        if not isinstance(env, gym.Wrapper):
            return None
        env = env.env


def _no_use(env: gym.Env[Any, Any]) -> str:
    return "masks are in the observations" if _has_key(env.observation_space) else "the actions are not discrete"


def _without() -> str:
    return f"set env_kwargs.{MASK_OPTION}=off"
