"""The figures that a loop adds to a metric line: largest reward, longest episode, share of clipped rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from rl_training.telemetry.metric_lines import read_metrics


class Growing(gym.Env[Any, Any]):
    """Episode n has n steps; step t of an episode pays -t."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.episode, self.steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), -float(self.steps), self.steps == self.episode, False, {}


def lines(folder: Path, algo: str, **changes: Any) -> list[dict[str, Any]]:
    settings: dict[str, Any] = {"learning_starts": 10, "batch_size": 8, "buffer_size": 100}
    if algo == "ppo":
        settings = {"num_steps": 10, "minibatch_size": 10, "update_epochs": 1}
    base = {"algo": algo, "env_id": "Growing", "total_timesteps": 40, "log_every": 10, "output_dir": str(folder)}
    base |= {"eval_episodes": 1, "checkpoint_every": 0, "algo_kwargs": settings | changes}
    result = rl_training.train(rl_training.load_config(base), env=Growing, show=False)
    return [line for line in read_metrics(result.run_dir) if line["kind"] == "train"]


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_rewards_and_episodes_so_far(algo: str, tmp_path: Path) -> None:
    # Ten steps are the episodes of 1, 2, 3 and 4 steps; the next one is still running after 5 of 5 and 5 of 6 steps.
    found = lines(tmp_path, algo, reward_scale=0.5)
    assert [line["longest_episode"] for line in found] == [4, 5, 7, 8]
    assert [line["reward_max"] for line in found] == [2.0, 2.5, 3.5, 4.0]


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_clipped_rewards_are_counted_since_the_last_line(algo: str, tmp_path: Path) -> None:
    found = lines(tmp_path, algo, reward_clip=2.0)
    # Rewards beyond 2: of the episodes 1 to 4, one in episode 3 and two in episode 4.
    assert found[0]["reward_clipped"] == pytest.approx(0.3) and found[0]["reward_max"] == 2.0
    assert found[1]["reward_clipped"] == pytest.approx(0.6)  # steps 3 to 5, and 3 to 5 of 6
