"""A request for envs: what `make_env` and `make_vector_env` are asked for, parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rl_training.config.pixels import PIXEL_KEYS, AtariOptions, ImageOptions, pixel_options
from rl_training.envs.action_mask import MASK_OPTION, mask_source, masked_env
from rl_training.envs.atari import atari_env, is_atari
from rl_training.envs.env_types import BackendName, EnvTarget
from rl_training.envs.image_wrappers import image_env
from rl_training.envs.named_wrappers import WRAPPERS_OPTION, Entry, wrapped, wrapper_entries
from rl_training.envs.observation_keys import KEYS_OPTION, SelectedKeys, keys_option
from rl_training.envs.processes.async_vector import DEFAULT_TIMEOUT
from rl_training.envs.velocity_mask import MASK_KEY, MaskVelocity, mask_option
from rl_training.errors import EnvError


@dataclass(frozen=True)
class EnvRequest:
    """Which env, with which options, how many and how they are stepped.

    `env_kwargs` are the keywords as given. `kwargs` are those of the env's constructor: the library's own (`atari`,
    `image`, `mask_velocity`, `action_masks`, `wrappers`, `observation_keys`) are taken out and parsed into the fields
    that follow.
    """

    target: EnvTarget
    env_kwargs: Mapping[str, Any]
    kwargs: Mapping[str, Any]
    atari: AtariOptions | None = None
    image: ImageOptions | None = None
    mask_velocity: bool = False
    action_masks: str = "auto"
    wrappers: tuple[Entry, ...] = ()
    observation_keys: tuple[str, ...] = ()
    num_envs: int = 1
    backend: BackendName = "auto"
    timeout: float = DEFAULT_TIMEOUT

    @classmethod
    def parse(
        cls,
        target: EnvTarget,
        env_kwargs: Mapping[str, Any],
        num_envs: int = 1,
        backend: BackendName = "auto",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> EnvRequest:
        """Take the library's own keywords out of `env_kwargs`; options that do not fit the env raise."""
        pixels, masked = pixel_options(env_kwargs), mask_option(env_kwargs)
        if isinstance(pixels, AtariOptions) and not is_atari(target):
            raise EnvError(
                f"env_kwargs.atari: {name_of(target)} is not an Atari id such as ALE/Pong-v5, use env_kwargs.image"
            )
        if isinstance(pixels, AtariOptions) and masked:
            raise EnvError(f"env_kwargs.{MASK_KEY}: {name_of(target)} shows images without velocities, leave it out")
        masks = mask_source(env_kwargs)
        if isinstance(pixels, AtariOptions) and masks == "info":
            raise EnvError(f"env_kwargs.{MASK_OPTION}: {name_of(target)} has no action masks, leave it out")
        keys = keys_option(env_kwargs)
        own = (*PIXEL_KEYS, MASK_KEY, MASK_OPTION, WRAPPERS_OPTION, KEYS_OPTION)
        return cls(
            target=target,
            env_kwargs=env_kwargs,
            kwargs={name: value for name, value in env_kwargs.items() if name not in own},
            atari=pixels if isinstance(pixels, AtariOptions) else None,
            image=pixels if isinstance(pixels, ImageOptions) else None,
            mask_velocity=masked,
            action_masks=masks,
            wrappers=wrapper_entries(env_kwargs),
            observation_keys=keys,
            num_envs=num_envs,
            backend=backend,
            timeout=timeout,
        )

    @property
    def spec(self) -> EnvSpec | None:
        """The registered spec, or None if a callable makes the env."""
        return self.target if isinstance(self.target, EnvSpec) else None

    def make_one(self) -> gym.Env[Any, Any]:
        """One env with its options applied."""
        if self.atari is not None:
            assert self.spec is not None
            return wrapped(atari_env(self.spec, self.atari, dict(self.kwargs)), self.wrappers)
        env = wrapped(self._make_plain(), self.wrappers)
        if self.observation_keys:
            env = SelectedKeys(env, self.observation_keys)
        if self.image is not None:
            env = image_env(env, self.image)
        return masked_env(MaskVelocity(env) if self.mask_velocity else env, self.action_masks)

    def _make_plain(self) -> gym.Env[Any, Any]:
        if self.spec is not None:
            # The checker would stay as an extra layer on every step; observations are checked when they are encoded.
            return gym.make(self.spec, disable_env_checker=True, **self.kwargs)
        if isinstance(self.target, gym.Env):
            raise EnvError(_refused(self.target))
        if not callable(self.target):
            raise TypeError(f"give an env id or a callable that makes the env, not {type(self.target).__name__}")
        env = self.target(**self.kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(f"the callable returned {type(env).__name__}, not a gymnasium.Env")
        return env


def _refused(env: gym.Env[Any, Any]) -> str:
    """One environment object cannot make the copies that training and evaluation need."""
    what = "env: got an environment object; pass"
    if env.spec is None:
        return f"{what} its class {type(env.unwrapped).__name__}, or a function that makes it"
    return f"{what} its id ({env.spec.id!r}) or a function that makes it (lambda: gym.make({env.spec.id!r}))"


def name_of(target: Any) -> str:
    """The id of a spec, or the name of a callable."""
    return target.id if isinstance(target, EnvSpec) else str(getattr(target, "__qualname__", repr(target)))
