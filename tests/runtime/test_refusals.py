"""Runs that cannot work are refused before there is a run directory."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from endless_env import EndlessEnv
from rl_training.config.loading import load_config
from rl_training.data import replay_memory
from rl_training.errors import ConfigError
from rl_training.runtime.workflows import train


class CameraEnv(EndlessEnv):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)


def test_cuda_without_cuda_is_one_line_and_leaves_no_run(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.fail("this test needs a machine without a GPU")
    config = load_config({"algo": "ppo", "env_id": "CartPole-v1", "device": "cuda", "output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match="device: cuda is not available"):
        train(config, show=False)
    assert list(tmp_path.iterdir()) == []


def test_images_in_another_layout_are_refused_before_there_is_a_run(tmp_path: Path) -> None:
    config = load_config({"algo": "ppo", "env_id": "callable:CameraEnv", "output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"\(8, 8, 3\) looks like \(height, width, channels\).*channel_first"):
        train(config, env=CameraEnv, show=False)
    assert list(tmp_path.iterdir()) == []


def test_a_replay_buffer_that_does_not_fit_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"algo": "dqn", "env_id": "CartPole-v1", "output_dir": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"buffer_size: .* GB .*: set buffer_size=\d+ or less"):
        train(load_config(settings, {"buffer_size": 10**12}), show=False)
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 1_000_000)
    with pytest.raises(ConfigError, match=r"0\.0 GB available"):
        train(load_config(settings, {"buffer_size": 50_000}), show=False)
    assert list(tmp_path.iterdir()) == []
