"""Environments of the benchmark of defaults that need a wrapper, and the one way in which both sides are evaluated.

Importing this module registers the ids `DoorKey-v0` (the symbolic view of MiniGrid as one vector), `EmptyRGB-v0` (the
view as a picture of 56 x 56 pixels) and `Highway-v0`, which Gymnasium finds as `default_envs:DoorKey-v0`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

EPISODES = 20
FIRST_SEED = 10_000
LONGEST_EPISODE = 1_000  # a greedy policy may walk against a wall for ever


def door_key(**kwargs: Any) -> gym.Env[Any, Any]:
    from minigrid.wrappers import ImgObsWrapper

    env = gym.make("minigrid:MiniGrid-DoorKey-5x5-v0", **kwargs)
    return gym.wrappers.FlattenObservation(ImgObsWrapper(env))


def empty_rgb(**kwargs: Any) -> gym.Env[Any, Any]:
    from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

    return ImgObsWrapper(RGBImgPartialObsWrapper(gym.make("minigrid:MiniGrid-Empty-5x5-v0", **kwargs)))


def highway(**kwargs: Any) -> gym.Env[Any, Any]:
    return gym.make("highway_env:highway-fast-v0", **kwargs)


for _name, _maker in (("DoorKey-v0", door_key), ("EmptyRGB-v0", empty_rgb), ("Highway-v0", highway)):
    if _name not in gym.registry:
        gym.register(_name, entry_point=_maker)


def evaluate(env: gym.Env[Any, Any], act: Callable[[Any], Any]) -> list[float]:
    """The raw returns of whole episodes; episode i is reset with FIRST_SEED + i. The env is closed."""
    returns = []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=FIRST_SEED + episode)
        total = 0.0
        for _ in range(LONGEST_EPISODE):
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            if terminated or truncated:
                break
        returns.append(total)
    env.close()
    return returns
