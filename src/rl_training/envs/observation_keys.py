"""Keys of a Dict observation that an agent sees; the others are left out.

Selected by `env_kwargs: {observation_keys: [image, state]}`, for one env and for the vector backends that make single
envs. The mask of the actions stays, too: it is a rule of the env and nothing that an agent sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from rl_training.envs.spaces import MASK_KEY
from rl_training.errors import ConfigError, EnvError
from rl_training.text import one_line

KEYS_OPTION = "observation_keys"


def keys_option(env_kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that `env_kwargs` names; none means all."""
    value = env_kwargs.get(KEYS_OPTION, ())
    if not isinstance(value, (list, tuple)) or not all(isinstance(key, str) for key in value):
        raise ConfigError(
            f"env_kwargs.{KEYS_OPTION}: {one_line(value, 60)} is not valid, expected a list of keys such as [image]",
            key="env_kwargs",
        )
    return tuple(value)


class SelectedKeys(gym.ObservationWrapper[dict[str, Any], Any, Any]):
    """A Dict observation with only the keys `keys` and the action mask, in the order of the space."""

    def __init__(self, env: gym.Env[Any, Any], keys: tuple[str, ...]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Dict):
            raise EnvError(
                f"env_kwargs.{KEYS_OPTION}: the observation is a {type(space).__name__} without keys, leave it out"
            )
        if missing := [key for key in keys if key not in space.spaces]:
            raise EnvError(
                f"env_kwargs.{KEYS_OPTION}: the observation has no {one_line(missing[0], 60)!r}, only "
                f"{one_line(', '.join(space.spaces), 200)}"
            )
        kept = {*keys, MASK_KEY}
        self.observation_space = gym.spaces.Dict({key: part for key, part in space.spaces.items() if key in kept})
        self._keys = tuple(self.observation_space.spaces)

    def observation(self, observation: Any) -> dict[str, Any]:
        return {key: observation[key] for key in self._keys}
