"""train_rainbow: updates, targets and noise of a whole run, its options, and the proof that the noise explores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from replay_helpers import make_loop
from rl_training.envs.probes import probe_vector_env
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_metrics_updates_and_support_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("rainbow", tmp_path, vector_backend="sync", num_atoms=11, support_low=-1, support_high=99)
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates == (STEPS - 16) // 2
    assert learner.model.support.tolist() == pytest.approx([-1 + 10 * i for i in range(11)])
    line = read_metrics(result.run_dir)[-2]
    assert {"loss", "q_mean", "target_q_mean", "support_clipped", "grad_norm"} <= line.keys()
    assert "exploration" not in line


@pytest.mark.parametrize("settings", [{"target_update_every": 32}, {"tau": 1.0}, {"target_update_every": 1000}])
def test_target_network_follows_as_told(settings: dict[str, float], tmp_path: Path) -> None:
    learner = train_tiny("rainbow", tmp_path, vector_backend="sync", learning_rate=0.01, **settings).agent.learner
    pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs) == ("tau" in settings)
    assert learner.target.copies.value == (1 if settings.get("target_update_every") == 32 else 0)


def test_without_its_parts(tmp_path: Path) -> None:
    parts = {"noisy": False, "double": False, "dueling": False, "prioritized": False, "n_step": 1}
    result = train_tiny("rainbow", tmp_path, num_envs=2, exploration=0.1, gradient_steps=-1, **parts)
    assert result.agent.learner.updates > 20
    assert read_metrics(result.run_dir)[-2]["exploration"] == pytest.approx(0.1)


class Chain(gym.Env[Any, Any]):
    """Twelve states in a row; action 1 moves on, action 0 goes back to the start. Only the last state pays."""

    def __init__(self, length: int = 12):
        self.length = length
        self.observation_space = gym.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.elapsed = 0, 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.elapsed += 1
        self.position = self.position + 1 if int(action) == 1 else 0
        arrived = self.position == self.length - 1
        return self._look(), float(arrived), arrived, self.elapsed == 2 * self.length, {}

    def _look(self) -> np.ndarray:
        return np.eye(self.length, dtype=np.float32)[self.position]


def share_of_arrivals(steps: int, **settings: Any) -> float:
    """The share of episodes in the last quarter of a run that reach the end of the chain."""
    envs = probe_vector_env(Chain, 4)
    loop = make_loop(
        "rainbow",
        envs,
        total_timesteps=steps,
        learning_starts=0,
        batch_size=16,
        buffer_size=20_000,
        train_frequency=8,
        learning_rate=1e-3,
        support_low=-1.0,
        support_high=1.0,
        num_atoms=11,
        target_update_every=100,
        model={"hidden_sizes": (32,), "activation": "relu", "initialization": "torch"},
        **settings,
    )
    # Every start prefers to go back: without noise, nothing ever leaves the first state.
    with torch.no_grad():
        last = loop.learner.model.advantage[-1] if not settings.get("noisy", True) else None
        layer = last if last is not None else loop.learner.model.advantage.layers[-1].mean
        layer.bias.view(2, 11)[0, -1] += 1.0
        loop.learner.target.follow()
    episodes = [(progress.env_steps, episode) for progress in loop for episode in progress.episodes]
    late = [episode.total_reward for at, episode in episodes if at > 0.75 * steps]
    return float(np.mean(late))


def test_without_noise_and_without_epsilon_a_sparse_chain_is_never_explored() -> None:
    assert share_of_arrivals(3_000, noisy=False, exploration=0.0) < 0.2


@pytest.mark.slow
def test_noise_alone_explores_a_sparse_chain() -> None:
    """The control is above: 20,000 steps without noise stay below 0.2 too."""
    assert share_of_arrivals(20_000) > 0.8
    assert share_of_arrivals(20_000, noisy=False, exploration=0.0) < 0.2
