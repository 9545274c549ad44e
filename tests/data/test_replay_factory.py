"""Making the buffer of a run: what is stored how, and what is refused before anything is allocated."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.config.algorithms.dqn import DQNConfig
from rl_training.data import replay_memory
from rl_training.data.frame_store import FrameStore
from rl_training.data.observation_store import WholeObservations
from rl_training.data.replay_factory import make_replay
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float64)
IMAGE = gym.spaces.Box(0, 255, (4, 8, 8), np.uint8)


def buffer_for(observation: gym.Space[Any], action: gym.Space[Any], env_kwargs: Any = None, **settings: Any) -> Any:
    return make_replay(Spaces(observation, action), DQNConfig(buffer_size=64, **settings), 4, env_kwargs or {})


def test_vectors_are_stored_whole_with_actions_as_the_learner_sees_them() -> None:
    for action, shape, dtype in (
        (gym.spaces.Discrete(3), (), np.int64),
        (gym.spaces.MultiDiscrete([2, 3]), (2,), np.int64),
        (gym.spaces.Box(-5, 5, (2,), np.float64), (2,), np.float32),
    ):
        buffer = buffer_for(VECTOR, action)
        assert isinstance(buffer.observations, WholeObservations)
        assert buffer.layout.observation == ((3,), np.dtype(np.float32))
        assert buffer.layout.action == (shape, np.dtype(dtype))
        assert (buffer.capacity, buffer.num_envs) == (64, 4)


@pytest.mark.parametrize(("env_kwargs", "stack"), [({}, 1), ({"atari": True}, 4), ({"image": {"stack": 2}}, 2)])
def test_images_are_stored_frame_by_frame_as_the_env_settings_stack_them(env_kwargs: Any, stack: int) -> None:
    buffer = buffer_for(IMAGE, gym.spaces.Discrete(3), env_kwargs)
    assert isinstance(buffer.observations, FrameStore)
    assert buffer.observations.stack == stack
    assert buffer.layout.frame_shape == (4 // stack, 8, 8)


def test_settings_reach_the_buffer() -> None:
    buffer = buffer_for(VECTOR, gym.spaces.Discrete(3), gamma=0.5, n_step=3)
    assert (buffer.gamma, buffer.n_step, buffer.state_dict()["prioritized"]) == (0.5, 3, False)
    prioritized = buffer_for(VECTOR, gym.spaces.Discrete(3), prioritized=True)
    assert prioritized.state_dict()["prioritized"]


def test_a_buffer_that_does_not_fit_is_refused_before_it_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 10**9)
    spaces = Spaces(IMAGE, gym.spaces.Discrete(3))
    with pytest.raises(ConfigError, match=r"algo_kwargs\.buffer_size: .* set buffer_size=\d+ or less") as caught:
        make_replay(spaces, DQNConfig(buffer_size=10**9), 4, {"atari": True})
    assert caught.value.key == "algo_kwargs.buffer_size"
