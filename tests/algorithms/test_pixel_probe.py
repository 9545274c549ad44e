"""Pixels reach what SAC learns about a continuous action: the dot of `DotProbe`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from replay_helpers import make_learner
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.envs.task_probes import DotProbe, PendulumPixelsProbe

MODEL = {"encoder": "impala", "encoder_size": 32, "hidden_sizes": [32], "activation": "relu"}
SETTINGS: dict[str, Any] = {"gamma": 0.1, "batch_size": 64, "actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3}


def dots(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and where their dots are."""
    env = DotProbe()
    env.reset(seed=seed)
    seen = [(env._jumped(), env.place) for _ in range(count)]
    return np.stack([image for image, _ in seen]), np.float32([place for _, place in seen])


def test_the_dot_is_where_the_reward_says() -> None:
    env = DotProbe()
    image, _ = env.reset(seed=1)
    columns = np.flatnonzero(image[0].any(0))
    assert len(columns) == 2 and image.sum() == 4 * 255
    assert env.place == pytest.approx(2 * columns[0] / 14 - 1)
    assert env.step(np.float32([env.place]))[1] == pytest.approx(0.0, abs=1e-9)
    place = env.place
    assert env.step(np.float32([place - 0.5]))[1] == pytest.approx(-0.25)


def test_a_few_steps_teach_the_critic_where_the_dot_is() -> None:
    env = DotProbe()
    learner = make_learner("sac", Spaces(env.observation_space, env.action_space), model=MODEL, **SETTINGS)
    images, places = dots(64, seed=0)
    rng = np.random.default_rng(0)
    rows = [torch.from_numpy(images), torch.from_numpy(rng.uniform(-1, 1, (64, 1)).astype(np.float32))]
    rewards = -(rows[1][:, 0] - torch.from_numpy(places)).square()
    batch = Transitions(obs=rows[0], actions=rows[1], rewards=rewards, next_obs=rows[0], discounts=torch.zeros(64))
    encoder = torch.cat([part.detach().reshape(-1) for part in learner.model.encoder.parameters()]).clone()
    losses = [float(learner.update(batch)["critic_loss"]) for _ in range(20)]
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3]), "most of the reward is the distance to the dot"
    changed = torch.cat([part.detach().reshape(-1) for part in learner.model.encoder.parameters()])
    assert not torch.equal(changed, encoder)


def test_the_pendulum_of_pixels_is_gymnasium_s() -> None:
    probe, real = PendulumPixelsProbe(), gym.make("Pendulum-v1")
    first, _ = probe.reset(seed=5)
    real.reset(seed=5)
    assert probe.observation_space.contains(first) and (first[0] == first[1]).all()
    over = False
    for step in range(200):
        action = np.float32([2.0 * np.sin(step)])
        image, reward, _, over, _ = probe.step(action)
        state, wanted, _, cut, _ = real.step(action)
        assert reward == wanted and over == cut
        rows, columns = np.nonzero(image[1] > 200)
        towards = np.array([17.5 - rows.mean(), columns.mean() - 17.5])  # up and to the right, from the center
        assert towards / np.linalg.norm(towards) == pytest.approx([state[0], -state[1]], abs=0.06)
    assert over and (image[0] != image[1]).any()
