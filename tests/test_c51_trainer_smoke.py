"""train_c51: updates, targets and support of a whole run, and all its options at once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from config_cases import refused
from rl_training.config.loading import list_presets, load_config
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_metrics_updates_and_support_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("c51", tmp_path, vector_backend="sync", num_atoms=11, support_low=-1, support_high=99)
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates == (STEPS - 16) // 2
    assert learner.model.support.tolist() == pytest.approx([-1 + 10 * i for i in range(11)])
    line = read_metrics(result.run_dir)[-2]
    assert {"loss", "q_mean", "target_q_mean", "support_clipped", "grad_norm"} <= line.keys()
    assert -1 < line["q_mean"] < 99


@pytest.mark.parametrize("settings", [{"target_update_every": 32}, {"tau": 1.0}, {"target_update_every": 1000}])
def test_target_network_follows_as_told(settings: dict[str, float], tmp_path: Path) -> None:
    learner = train_tiny("c51", tmp_path, vector_backend="sync", learning_rate=0.01, **settings).agent.learner
    pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
    same = all(torch.equal(mine, theirs) for mine, theirs in pairs)
    # After the only copy, at step 33 (updates come at odd steps), or none at all, the online network went on learning.
    assert same == ("tau" in settings)
    assert learner.target.copies.value == (1 if settings.get("target_update_every") == 32 else 0)


def test_all_options_together(tmp_path: Path) -> None:
    result = train_tiny(
        "c51", tmp_path, double=True, dueling=True, prioritized=True, n_step=3, num_envs=2, gradient_steps=-1
    )
    assert result.agent.learner.updates > 20 and result.evaluation.mean_return > 0


@pytest.mark.parametrize("algo", ["c51", "d4pg"])
@pytest.mark.parametrize("bounds", [{"support_low": 5, "support_high": 5}, {"support_low": 1000}])
def test_a_support_without_width_is_refused(algo: str, bounds: dict[str, float]) -> None:
    message = refused({"algo": algo, "env_id": "Env-v0", "algo_kwargs": bounds})
    assert message.startswith("algo_kwargs.support_low: ") and "support_high" in message


# The least and the most that one step pays.
REWARDS = {
    "CartPole-v1": (0.0, 1.0),
    "Acrobot-v1": (-1.0, 0.0),
    "MountainCar-v0": (-1.0, 0.0),
    "MountainCarContinuous-v0": (-0.1, 0.0),
    "Pendulum-v1": (-(math.pi**2 + 6.4 + 0.004), 0.0),
}
LAST_REWARD = {"MountainCarContinuous-v0": 100.0}  # pays once and ends the episode
# An untrained distribution's mean is the middle of its support. Where an end is far from 0 that would be a promise.
AROUND_ZERO = ("d4pg/mountaincar_continuous",)


CATEGORICAL = [name for name in list_presets() if name.startswith(("c51/", "d4pg/", "rainbow/"))]


@pytest.mark.parametrize("preset", [name for name in CATEGORICAL if load_config(name).env_id in REWARDS])
def test_the_supports_of_presets_hold_every_return_their_task_can_have(preset: str) -> None:
    config = load_config(preset)
    settings: Any = config.algo_kwargs
    least, most = (settings.reward_scale * reward / (1 - settings.gamma) for reward in REWARDS[config.env_id])
    most = max(most, settings.reward_scale * LAST_REWARD.get(config.env_id, 0.0))
    if preset in AROUND_ZERO:
        least, most = -max(-least, most), max(-least, most)
    assert settings.support_low <= least + 1e-9 and most - 1e-9 <= settings.support_high
    # And little more than that: an atom that no return can reach is wasted.
    assert settings.support_high - settings.support_low <= 1.1 * (most - least)


@pytest.mark.parametrize("preset", [name for name in CATEGORICAL if load_config(name).env_id.startswith("ALE/")])
def test_the_supports_of_games_are_the_published_one_and_fit_clipped_rewards(preset: str) -> None:
    """arXiv:1707.06887, section 5, and arXiv:1710.02298, table 1."""
    settings: Any = load_config(preset).algo_kwargs
    assert (settings.support_low, settings.support_high, settings.num_atoms) == (-10.0, 10.0, 51)
    assert settings.reward_clip == 1.0


LANDERS = [name for name in CATEGORICAL if load_config(name).env_id.startswith("LunarLander-v")]


def test_every_categorical_preset_is_looked_at() -> None:
    known = {name for name in CATEGORICAL if load_config(name).env_id in REWARDS or name.endswith("_atari")}
    assert {*known, *LANDERS} == set(CATEGORICAL)


@pytest.mark.parametrize("preset", LANDERS)
def test_where_no_formula_bounds_returns_the_support_holds_those_of_a_sound_pilot(preset: str) -> None:
    """LunarLander: a lander may fly away for as long as it likes, and how bad that is need not be told apart."""
    from gymnasium.envs.box2d.lunar_lander import heuristic

    config = load_config(preset)
    settings: Any = config.algo_kwargs
    returns = []
    env = gym.make(config.env_id, **config.env_kwargs)
    for seed in range(10):
        observation, _ = env.reset(seed=seed)
        rewards, over = [], False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(heuristic(env.unwrapped, observation))
            rewards.append(float(np.clip(settings.reward_scale * reward, -settings.reward_clip, settings.reward_clip)))
            over = terminated or truncated
        value = 0.0
        for reward in reversed(rewards):
            returns.append(value := reward + settings.gamma * value)
    assert settings.support_low < min(returns) and 5 < max(returns) < settings.support_high, "it lands, and all is told"
    assert settings.support_high < 2 * max(returns), "an atom that no return can reach is wasted"
