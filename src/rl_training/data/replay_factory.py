"""Making the replay buffer of a run: its layout from the spaces, its size against the memory there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from rl_training.config.base import ReplayConfig
from rl_training.config.pixels import frame_stack
from rl_training.data.goal_replay import GoalReplay, Hindsight
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_layout import Column, ReplayLayout
from rl_training.data.replay_memory import check_replay_fits
from rl_training.data.sharded_replay import ShardedReplay
from rl_training.data.trajectory_replay import MEMORY, TrajectoryReplay, WindowOptions
from rl_training.envs.spaces import Spaces


class ReplaySize(Protocol):
    """The settings that a trajectory replay needs."""

    @property
    def buffer_size(self) -> int: ...
    @property
    def gamma(self) -> float: ...


def make_replay(
    spaces: Spaces,
    settings: ReplayConfig,
    num_envs: int,
    env_kwargs: Mapping[str, Any],
    hindsight: Callable[[], Hindsight] | None = None,
    memory_shape: tuple[int, ...] | None = None,
) -> ReplayBuffer:
    """The buffer for `num_envs` envs with these spaces; one that does not fit into memory raises ConfigError.

    Images are stored frame by frame: `env_kwargs` say how many frames make an observation. `hindsight` is called if
    the settings ask for other goals. A policy with memory has a `memory_shape` per env, and settings with windows.
    """
    if settings.window is not None:
        steps, burn_in = settings.window
        columns: dict[str, Column] = {} if memory_shape is None else {MEMORY: (memory_shape, np.dtype(np.float32))}
        window, priorities = WindowOptions(steps, burn_in), _options(settings)["prioritized"]
        return make_trajectory_replay(spaces, settings, num_envs, env_kwargs, window, columns, priorities)
    layout = _layout(spaces, settings.buffer_size, num_envs, env_kwargs)
    check_replay_fits(ReplayBuffer.predicted_bytes(layout, prioritized=settings.prioritized), settings.buffer_size)
    if settings.hindsight and hindsight is not None:
        return GoalReplay(layout, hindsight(), **_options(settings))
    return ReplayBuffer(layout, **_options(settings))


def make_trajectory_replay(
    spaces: Spaces,
    settings: ReplaySize,
    num_envs: int,
    env_kwargs: Mapping[str, Any],
    window: WindowOptions,
    columns: Mapping[str, Column],
    priorities: PriorityOptions | None = None,
) -> TrajectoryReplay:
    """The trajectory replay that also keeps `columns` of every step; too large a one raises ConfigError."""
    layout = TrajectoryReplay.layout_with(_layout(spaces, settings.buffer_size, num_envs, env_kwargs), columns)
    needed = TrajectoryReplay.predicted_bytes(layout, prioritized=priorities is not None)
    check_replay_fits(needed, settings.buffer_size)
    return TrajectoryReplay(layout, window, gamma=settings.gamma, prioritized=priorities)


def make_sharded_replay(
    spaces: Spaces, settings: ReplayConfig, num_envs: int, shards: int, env_kwargs: Mapping[str, Any]
) -> ShardedReplay:
    """`make_replay` in equal shards, each for its share of the envs and of the size."""
    layout = _layout(spaces, max(1, settings.buffer_size // shards), num_envs // shards, env_kwargs)
    needed = shards * ReplayBuffer.predicted_bytes(layout, prioritized=settings.prioritized)
    check_replay_fits(needed, settings.buffer_size)
    return ShardedReplay([ReplayBuffer(layout, **_options(settings)) for _ in range(shards)])


def recent_steps(spaces: Spaces, settings: ReplayConfig, num_envs: int, steps: int) -> ReplayBuffer:
    """A small buffer of the last `steps` vector steps, with observations stored whole and without priorities."""
    layout = _layout(spaces, steps * num_envs, num_envs, None)
    return ReplayBuffer(layout, gamma=settings.gamma, n_step=settings.n_step)


def _layout(spaces: Spaces, capacity: int, num_envs: int, env_kwargs: Mapping[str, Any] | None) -> ReplayLayout:
    """Without `env_kwargs`, observations are stored whole."""
    by_frame = env_kwargs is not None and len(spaces.observation_shape) == 3
    return ReplayLayout(
        capacity,
        num_envs,
        spaces.observation_shape,
        spaces.observation_dtype,
        spaces.action_shape,
        "float32" if spaces.action_kind == "box" else "int64",
        stack=frame_stack(env_kwargs) if by_frame and env_kwargs is not None else None,
        images=() if env_kwargs is None else tuple((image.start, image.stop, image.shape) for image in spaces.images),
        action_count=spaces.action_sizes[0] if spaces.action_kind == "discrete" else None,
    )


def _options(settings: ReplayConfig) -> dict[str, Any]:
    priorities = PriorityOptions(
        settings.priority_exponent, settings.priority_epsilon, settings.priority_floor, settings.priority_refresh
    )
    return {
        "gamma": settings.gamma,
        "n_step": settings.n_step,
        "prioritized": priorities if settings.prioritized else None,
    }
