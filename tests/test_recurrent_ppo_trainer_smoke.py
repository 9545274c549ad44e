"""train_recurrent_ppo: what a run logs, that memory is carried by everything that acts, and that resuming is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training
from cli_helpers import call
from probe_suite import build_loop
from rl_training.config.loading import load_config
from rl_training.contrib import RecurrentPPO
from rl_training.envs.factory import make_env
from rl_training.envs.probes import TimeLimitRingProbe, probe_vector_env
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.agent import Agent
from rl_training.runtime.recurrent_ppo_trainer import train_recurrent_ppo
from rl_training.runtime.workflows import evaluate_checkpoint, resume
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, Blocks, managed, tiny_config, train_tiny

MASKED = {"env_kwargs": {"mask_velocity": True}}


def test_every_metric_of_the_algorithm_is_logged(tmp_path: Path) -> None:
    line = read_metrics(train_tiny("recurrent_ppo", tmp_path, vector_backend="sync").run_dir)[-2]
    names = {"loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
    assert names | {"explained_variance", "learning_rate", "mean_return"} <= line.keys()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("shared_memory", [False, True])
def test_every_memory_trains_and_its_checkpoint_acts_the_same(cell: str, shared_memory: bool, tmp_path: Path) -> None:
    settings = {"cell": cell, "shared_memory": shared_memory, "memory_layers": 2, **MASKED}
    result = train_tiny("recurrent_ppo", tmp_path, **settings)
    assert 0.9 * STEPS < result.env_steps <= STEPS
    first, second = (evaluate_checkpoint(result.run_dir, episodes=3, seed=5) for _ in range(2))
    assert first.returns == second.returns


@pytest.mark.parametrize("actions", ["Pendulum-v1", gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2)])
def test_every_kind_of_action_trains(actions: Any, tmp_path: Path) -> None:
    if isinstance(actions, str):
        assert train_tiny("recurrent_ppo", tmp_path, env_id=actions).env_steps == STEPS
        return
    agent = managed("recurrent_ppo", tmp_path, lambda: Blocks(gym.spaces.Box(-1, 1, (3,)), actions)).learn(show=False)
    assert agent.env_steps == STEPS


def test_images_train_too(tmp_path: Path) -> None:
    pixels = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
    agent = managed("recurrent_ppo", tmp_path, lambda: Blocks(pixels, gym.spaces.Discrete(3)), encoder_size=8)
    assert agent.learn(show=False).env_steps == STEPS
    assert agent.predict(pixels.sample())[0] in range(3)


def played(agent: Any, seed: int, *, batched: bool) -> float:
    """The return of one episode through `predict`, with the memory carried by the caller."""
    env = make_env("CartPole-v1", MASKED["env_kwargs"])
    observation, _ = env.reset(seed=seed)
    total, state, start, over = 0.0, None, True, False
    while not over:
        given = observation[None] if batched else observation
        action, state = agent.predict(given, state=state, episode_start=np.array([start]) if batched else start)
        observation, reward, terminated, truncated, _ = env.step(action[0] if batched else action)
        total, start, over = total + float(reward), False, terminated or truncated
    return total


def test_predict_with_its_state_plays_what_evaluate_plays(tmp_path: Path) -> None:
    agent = managed("recurrent_ppo", tmp_path, **MASKED, total_timesteps=2000, learning_rate=3e-3).learn(show=False)
    evaluated = agent.evaluate(episodes=3, seed=7)
    for batched in (False, True):
        assert tuple(played(agent, 7 + i, batched=batched) for i in range(3)) == evaluated.returns


def test_the_state_matters_and_an_episode_start_empties_it(tmp_path: Path) -> None:
    agent = managed("recurrent_ppo", tmp_path, env="Pendulum-v1", env_kwargs={"mask_velocity": True})
    rng = np.random.default_rng(0)
    first, second = rng.uniform(-1, 1, (2, 4, 2)).astype(np.float32)
    _, state = agent.predict(first)
    alone, _ = agent.predict(second)
    carried, _ = agent.predict(second, state=state)
    restarted, _ = agent.predict(second, state=state, episode_start=np.array([True, False, True, False]))
    assert not np.allclose(alone, carried, atol=1e-7)
    np.testing.assert_array_equal(restarted[[0, 2]], alone[[0, 2]])
    np.testing.assert_array_equal(restarted[[1, 3]], carried[[1, 3]])
    with pytest.raises(ConfigError, match="state: "):
        agent.predict(second[0], state=state)
    with pytest.raises(ConfigError, match=r"episode_start: shape \(3,\) is not valid for 4 observations"):
        agent.predict(second, state=state, episode_start=[True, False, True])


def test_predicting_an_episode_carries_the_state_from_row_to_row(tmp_path: Path) -> None:
    agent = managed("recurrent_ppo", tmp_path, env="Pendulum-v1", env_kwargs={"mask_velocity": True})
    steps = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    state, expected = None, []
    for step in steps:
        action, state = agent.predict(step, state=state)
        expected.append(action)
    whole = agent.agent.predict_episode(steps)
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    assert not np.allclose(whole[1:], agent.predict(steps)[0][1:], atol=1e-7), "as if each were the first"


def test_the_managed_class_saves_loads_and_goes_on(tmp_path: Path) -> None:
    sizes = {"num_envs": 1, "num_steps": 16, "minibatch_size": 8, "sequence_length": 4}
    agent = RecurrentPPO("CartPole-v1", output_dir=str(tmp_path), **sizes)
    assert agent.learn(64, show=False) is agent and agent.algorithm == "recurrent_ppo"
    saved = agent.save(tmp_path / "agent")
    for loaded in (RecurrentPPO.load(saved), rl_training.load(saved), rl_training.load(agent.run_dir)):
        assert isinstance(loaded, RecurrentPPO) and loaded.evaluate(2).returns == agent.evaluate(2).returns
    with pytest.raises(CheckpointError, match=r"recurrent_ppo, not ppo: load it with RecurrentPPO\.load"):
        rl_training.PPO.load(saved)
    assert agent.learn(32, show=False).env_steps == 96


def test_memory_is_carried_from_rollout_to_rollout_and_empty_after_a_checkpoint() -> None:
    """A checkpoint cuts all episodes, so the hidden states that belong to it are known: there are none."""
    loop = build_loop("recurrent_ppo", probe_vector_env(TimeLimitRingProbe, 2, length=50), steps=64)
    loop.round()
    remembered = loop.collector.memory
    assert remembered.shape == (2, 4, 16) and remembered.any() and not loop.collector.episode_starts.any()
    rollout, _ = loop.collector.collect(3)
    np.testing.assert_array_equal(rollout.initial_memory, remembered)
    loop.barrier()
    loop.restart_envs()
    assert loop.collector.memory is None and loop.collector.episode_starts.all()


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 32, "num_envs": 2, "num_steps": 8, **MASKED}
    whole = train_tiny("recurrent_ppo", tmp_path / "whole", **settings)
    half = train_recurrent_ppo(
        tiny_config("recurrent_ppo", tmp_path / "half", **settings), callback=lambda p: p.env_steps < 32, show=False
    )
    assert half.interrupted
    second = resume(half.run_dir, show=False)
    for ours, theirs in zip(
        whole.agent.learner.model.parameters(), second.agent.learner.model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert second.evaluation == whole.evaluation


def test_a_checkpoint_with_another_memory_is_refused_in_one_line(tmp_path: Path) -> None:
    result = train_tiny("recurrent_ppo", tmp_path)
    checkpoint = load_checkpoint(result.checkpoint)
    checkpoint.config["algo_kwargs"]["memory_size"] = 9
    with pytest.raises(CheckpointError, match="does not fit this recurrent_ppo"):
        Agent.load(checkpoint)


def test_the_command_line_trains_evaluates_predicts_plays_and_resumes(tmp_path: Path) -> None:
    settings = ["num_steps=16", "minibatch_size=8", "sequence_length=4", "eval_episodes=1", "num_envs=2"]
    options = [word for setting in settings for word in ("--set", setting)]
    trained = call(
        "train", "recurrent_ppo/cartpole_masked", *options, "--total-timesteps", "64", "--output-dir", str(tmp_path),
        "--json", "--quiet",
    )  # fmt: skip
    assert trained.code == 0, trained.err
    run = trained.json["run_dir"]
    evaluated = call("eval", run, "--episodes", "2", "--json")
    assert evaluated.json["episodes"] == 2
    predicted = call("predict", run, "--obs", "[0.01, -0.02]")
    assert predicted.json in (0, 1)
    steps = [[0.01, -0.02], [0.02, 0.0], [0.04, 0.02]]
    whole = call("predict", run, "--obs", str(steps), "--episode")
    agent, state, expected = rl_training.load(run), None, []
    for step in steps:
        action, state = agent.predict(np.array(step, np.float32), state=state)
        expected.append(int(action))
    assert whole.json == expected
    assert "needs a list" in call("predict", run, "--obs", "[0.01, -0.02]", "--episode").err
    resumed = call("resume", run, "--total-timesteps", "96", "--json", "--quiet")
    assert resumed.code == 0 and resumed.json["env_steps"] > 64
    played_file = tmp_path / "play.gif"
    shown = call("play", run, "--gif", str(played_file))
    assert shown.code == 0 and played_file.stat().st_size > 1000


def test_the_atari_preset_remembers_single_frames(tmp_path: Path) -> None:
    small = {"env_kwargs.atari.image_size": 36, "env_kwargs.atari.max_frames": 120, "encoder_size": 8, "memory_size": 4}
    sizes = {"num_steps": 8, "minibatch_size": 8, "sequence_length": 4, "num_envs": 2, "total_timesteps": 32}
    run = {"output_dir": str(tmp_path), "eval_episodes": 1, "update_epochs": 1}
    agent = RecurrentPPO(preset="recurrent_ppo/breakout_atari", **small, **sizes, **run).learn(show=False)
    assert agent.env_steps == 32 and agent.agent.spaces.observation_shape == (1, 36, 36)
    assert agent.agent.learner.model.memory_shape == (2, 4)


@pytest.mark.parametrize(
    "env", ["cartpole", "cartpole_masked", "pendulum_masked", "lunarlander_masked", "breakout_atari"]
)
def test_presets_are_valid_and_say_what_they_hide(env: str) -> None:
    config = load_config(f"recurrent_ppo/{env}")
    assert config.algo == "recurrent_ppo"
    assert config.env_kwargs.get("mask_velocity", False) == env.endswith("_masked")
