"""`defaults: env` becomes numbers: the spaces of the environment decide, once, before a run or an agent is built."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.vector import VectorEnv

from rl_training.config.env_defaults import (
    SMALLEST_FOR_CNN,
    Actions,
    EnvKind,
    env_defaults,
    given_over_defaults,
    image_options,
    image_side,
)
from rl_training.config.train_config import TrainConfig
from rl_training.envs.atari import is_atari
from rl_training.envs.env_specs import find_spec
from rl_training.envs.env_types import EnvSource
from rl_training.envs.spaces import Spaces
from rl_training.runtime.setup.run_envs import spaces_of


def resolve_defaults(config: TrainConfig, env: EnvSource | None = None) -> TrainConfig:
    """The complete config. `env` is the environment if it is a Python object; otherwise the config names it.

    A run stores the result, so its numbers stay the same whatever a later version prefers.
    """
    if config.defaults == "fixed":
        return config
    source = config.env_id if env is None else env
    spaces = spaces_of(source, config)
    kind = kind_of(spaces)
    defaults = env_defaults(config.algo, kind)
    if spaces.images and kind.observations == "vector":  # images beside vectors need as much memory as images alone
        of_images = env_defaults(config.algo, EnvKind("image", kind.actions)).get("algo_kwargs", {})
        if "buffer_size" in of_images:
            defaults["algo_kwargs"] = {**defaults.get("algo_kwargs", {}), "buffer_size": of_images["buffer_size"]}
    if len(spaces.observation_shape) == 3 and not isinstance(source, VectorEnv):
        atari = isinstance(source, str) and is_atari(find_spec(source))
        defaults["env_kwargs"] = image_options(spaces.observation_shape, config.env_kwargs, is_atari=atari)
        if "atari" in defaults["env_kwargs"]:  # scores differ by game from 1 to 10,000 per step
            defaults["algo_kwargs"]["reward_clip"] = 1.0
    given = config.model_dump()
    return TrainConfig.model_validate({**given_over_defaults(given, defaults), "defaults": "fixed"})


def kind_of(spaces: Spaces) -> EnvKind:
    """The kind of an environment with these spaces."""
    actions: Actions = "continuous" if spaces.action_kind == "box" else "discrete"
    if len(spaces.observation_shape) == 3:
        is_small = image_side(spaces.observation_shape) < SMALLEST_FOR_CNN
        return EnvKind("small image" if is_small else "image", actions)
    return EnvKind("table" if isinstance(spaces.observation_space, gym.spaces.Discrete) else "vector", actions)
