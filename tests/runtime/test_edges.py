"""Edges that users meet: refusals before anything is written, envs that fail, runs that branch or start from agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.api import A2C, DQN, PPO
from rl_training.config.loading import load_config
from rl_training.data import replay_memory
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.runtime import evaluation
from rl_training.runtime.run_saver import free_name
from rl_training.runtime.workflows import evaluate_checkpoint, resume, train
from rl_training.storage.checkpoints import best_checkpoint, list_checkpoints, load_checkpoint

TINY: dict[str, Any] = {"hidden_sizes": (8,), "eval_episodes": 1}


class Endless(gym.Env[Any, Any]):
    """Never ends by itself; fails at step `fail_at`."""

    def __init__(self, fail_at: int = -1) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.fail_at, self.steps = fail_at, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.fail_at:
            raise ZeroDivisionError("the wheel came off")
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Camera(Endless):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)


def test_cuda_without_cuda_is_one_line_and_leaves_no_run(tmp_path):
    if torch.cuda.is_available():
        pytest.fail("written for machines without a GPU: adapt it")
    config = load_config({"algo": "ppo", "env_id": "CartPole-v1", "device": "cuda", "output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match="device: cuda is not available"):
        train(config, show=False)
    assert list(tmp_path.iterdir()) == []


def test_an_agent_trained_on_a_gpu_acts_on_the_cpu(tmp_path):
    agent = PPO("CartPole-v1", output_dir=str(tmp_path), **TINY)
    agent.agent.config = agent.agent.config.model_copy(update={"device": "cuda"})
    saved = agent.save(tmp_path / "agent")
    assert load_checkpoint(saved).config["device"] == "cuda"
    assert evaluate_checkpoint(saved, episodes=1).mean_return > 0


def test_images_in_another_layout_are_refused_before_there_is_a_run(tmp_path):
    config = load_config({"algo": "ppo", "env_id": "callable:Camera", "output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"\(8, 8, 3\) looks like \(height, width, channels\).*channel_first"):
        train(config, env=Camera, show=False)
    assert list(tmp_path.iterdir()) == []


def test_a_replay_buffer_that_does_not_fit_is_refused_with_its_size(tmp_path, monkeypatch):
    settings = {"algo": "dqn", "env_id": "CartPole-v1", "output_dir": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"buffer_size: .* GB .*: set buffer_size=\d+ or less"):
        train(load_config(settings, {"buffer_size": 10**12}), show=False)
    monkeypatch.setattr(replay_memory, "available_bytes", lambda: 1_000_000)
    with pytest.raises(ConfigError, match=r"0\.0 GB available"):
        train(load_config(settings, {"buffer_size": 50_000}), show=False)
    assert list(tmp_path.iterdir()) == []


def test_a_containers_limit_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert replay_memory.available_bytes() == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert (replay_memory.available_bytes() or 0) > 3000


def test_an_exception_of_the_env_is_one_line_with_its_place_and_cause(tmp_path):
    agent = PPO(lambda: Endless(fail_at=7), output_dir=str(tmp_path), num_steps=16, minibatch_size=8, **TINY)
    with pytest.raises(EnvError, match=r"test_edges\.py:\d+ in step: ZeroDivisionError: the wheel") as caught:
        agent.learn(64, show=False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and "\n" not in str(caught.value)


def test_an_evaluation_episode_that_never_ends_is_stopped_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 50)
    with pytest.raises(EnvError, match=r"did not end within 50 steps.*TimeLimit"):
        PPO(Endless, output_dir=str(tmp_path), **TINY).evaluate(1)


def test_an_evaluation_can_be_stopped_in_the_middle(tmp_path):
    agent = PPO(Endless, output_dir=str(tmp_path), **TINY).agent
    calls = iter([False, False, True])
    stopped = lambda: next(calls)  # noqa: E731
    assert evaluation.evaluate(agent.learner, agent.spaces, Endless, episodes=1, stopped=stopped) is None


def test_rollouts_of_resets_only_are_not_learned_from(tmp_path):
    """One env under next-step autoreset, one step per rollout: the step after an end holds no transition."""
    settings = {"num_envs": 1, "num_steps": 1, "vector_backend": "native", "output_dir": str(tmp_path)}
    agent = A2C("CartPole-v1", **settings, **TINY).learn(300, show=False)
    assert agent.env_steps == 300


def test_dqn_started_from_a_saved_agent_moves_its_target_again(tmp_path):
    settings = {"target_update_every": 50, "learning_starts": 20, "batch_size": 8, "buffer_size": 1000, **TINY}
    old = DQN("CartPole-v1", output_dir=str(tmp_path), **settings).learn(1000, show=False)
    new = DQN.load(old.save(tmp_path / "agent"))
    before = {name: value.clone() for name, value in new.agent.learner.target.state_dict().items()}
    new.learn(300, show=False)
    after = new.agent.learner.target.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_resuming_an_older_checkpoint_sets_the_newer_ones_aside(tmp_path):
    settings = {"num_steps": 10, "minibatch_size": 5, "checkpoint_every": 20, "eval_every": 20, "keep_checkpoints": 9}
    result = PPO("CartPole-v1", output_dir=str(tmp_path), **settings, **TINY).learn(80, show=False).result
    paths = list_checkpoints(result.run_dir, "resume")
    older = paths[-2]
    newer = [path.name for path in list_checkpoints(result.run_dir) if int(path.name.split("-")[1]) > 25]
    resume(older, show=False, callback=lambda progress: False)
    kept = {path.name for path in (result.run_dir / "checkpoints").iterdir()}
    assert newer and {f"abandoned-{name}" for name in newer} <= kept
    assert load_checkpoint(result.run_dir / "checkpoints" / f"abandoned-{newer[0]}").config["algo"] == "ppo"


def test_free_names(tmp_path):
    assert free_name(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert free_name(tmp_path / "a") == tmp_path / "a-3"


def test_a_checkpoint_whose_parts_disagree_is_refused(tmp_path):
    agent = PPO("CartPole-v1", output_dir=str(tmp_path), **TINY)
    agent.agent.config = load_config({"algo": "a2c", "env_id": "CartPole-v1"})
    with pytest.raises(CheckpointError, match="says ppo, but its config is of a2c"):
        evaluate_checkpoint(agent.save(tmp_path / "agent"), episodes=1)


def test_resuming_with_another_env_id_forgets_the_old_keywords_and_records_the_new(tmp_path):
    settings = {"num_steps": 10, "minibatch_size": 5, "env_kwargs": {"g": 9.0}, "output_dir": str(tmp_path)}
    run = PPO("Pendulum-v1", **settings, **TINY).learn(20, show=False).run_dir
    gym.register("OtherPendulum-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=50)
    try:
        PPO.load(run, env="OtherPendulum-v0").learn(20, show=False)
        config = load_config(run / "config.yaml")
        assert (config.env_id, config.env_kwargs) == ("OtherPendulum-v0", {})
    finally:
        gym.registry.pop("OtherPendulum-v0")


def test_ctrl_c_in_a_terminal_with_env_processes_saves_and_is_resumable(tmp_path):
    """A terminal sends SIGINT to the whole process group, the env workers too."""
    words = ["train", "ppo/pendulum", "--output-dir", str(tmp_path), "--quiet", "--json"]
    for change in ("vector_backend=async", "num_envs=2", "num_steps=32", "minibatch_size=32"):
        words += ["--set", change]
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while not any(tmp_path.glob("*/metrics.jsonl")) or not next(tmp_path.glob("*/metrics.jsonl")).read_text():
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 75, err
    summary = json.loads(out.splitlines()[-1])
    assert summary["env_steps"] > 0 and load_checkpoint(summary["checkpoint"]).env_steps == summary["env_steps"]
    assert json.loads((Path(summary["run_dir"]) / "run.json").read_text())["status"] == "interrupted"


def test_a_finished_run_that_is_resumed_again_keeps_one_best_agent(tmp_path):
    settings = {"num_steps": 10, "minibatch_size": 5, "output_dir": str(tmp_path)}
    run = PPO("CartPole-v1", **settings, **TINY).learn(20, show=False).run_dir
    before = best_checkpoint(run).path
    resume(run, show=False)
    assert list_checkpoints(run, "agent") == [before]
