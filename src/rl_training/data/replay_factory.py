"""Making the replay buffer of a run: its layout from the spaces, its size against the memory there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_training.config.base import ReplayConfig
from rl_training.config.pixels import frame_stack
from rl_training.data.goal_replay import GoalReplay, Hindsight
from rl_training.data.replay_buffer import PriorityOptions, ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout
from rl_training.data.replay_memory import check_replay_fits
from rl_training.envs.spaces import Spaces


def make_replay(
    spaces: Spaces,
    settings: ReplayConfig,
    num_envs: int,
    env_kwargs: Mapping[str, Any],
    hindsight: Callable[[], Hindsight] | None = None,
) -> ReplayBuffer:
    """The buffer for `num_envs` envs with these spaces; one that does not fit into memory raises ConfigError.

    Images are stored frame by frame: `env_kwargs` say how many frames make an observation. `hindsight` is called if
    the settings ask for other goals.
    """
    layout = ReplayLayout(
        settings.buffer_size,
        num_envs,
        spaces.observation_shape,
        spaces.observation_dtype,
        spaces.action_shape,
        "float32" if spaces.action_kind == "box" else "int64",
        stack=frame_stack(env_kwargs) if len(spaces.observation_shape) == 3 else None,
        images=tuple((image.start, image.stop, image.shape) for image in spaces.images),
    )
    check_replay_fits(ReplayBuffer.predicted_bytes(layout, prioritized=settings.prioritized), settings.buffer_size)
    priorities = PriorityOptions(settings.priority_exponent, settings.priority_epsilon)
    options: dict[str, Any] = {
        "gamma": settings.gamma,
        "n_step": settings.n_step,
        "prioritized": priorities if settings.prioritized else None,
    }
    if settings.hindsight and hindsight is not None:
        return GoalReplay(layout, hindsight(), **options)
    return ReplayBuffer(layout, **options)
