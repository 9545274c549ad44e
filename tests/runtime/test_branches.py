"""Runs that take another branch: resumed from an older checkpoint, or on another env."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from rl_training.api import PPO
from rl_training.config.loading import load_config
from rl_training.runtime.workflows import resume
from rl_training.storage.checkpoints import list_checkpoints, load_checkpoint
from rl_training.storage.durable_files import free_name

TINY: dict[str, Any] = {
    "hidden_sizes": (8,),
    "eval_episodes": 1,
    "num_envs": 1,
    "num_steps": 10,
    "minibatch_size": 5,
}


def test_resuming_an_older_checkpoint_sets_the_newer_ones_aside(tmp_path: Path) -> None:
    cadences = {"checkpoint_every": 20, "eval_every": 20, "keep_checkpoints": 9}
    run_dir = PPO("CartPole-v1", output_dir=str(tmp_path), **cadences, **TINY).learn(80, show=False).run_dir
    assert run_dir is not None
    older = list_checkpoints(run_dir, "resume")[-2]
    newer = [path.name for path in list_checkpoints(run_dir) if int(path.name.split("-")[1]) > 25]
    resume(older, show=False, callback=lambda progress: False)
    kept = {path.name for path in (run_dir / "checkpoints").iterdir()}
    assert newer and {f"abandoned-{name}" for name in newer} <= kept
    assert load_checkpoint(run_dir / "checkpoints" / f"abandoned-{newer[0]}").config["algo"] == "ppo"


def test_free_names(tmp_path: Path) -> None:
    assert free_name(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert free_name(tmp_path / "a") == tmp_path / "a-3"


def test_resuming_with_another_env_id_forgets_the_old_keywords_and_records_the_new(tmp_path: Path) -> None:
    run_dir = PPO("Pendulum-v1", env_kwargs={"g": 9.0}, output_dir=str(tmp_path), **TINY).learn(20, show=False).run_dir
    assert run_dir is not None
    gym.register("OtherPendulum-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=50)
    try:
        PPO.load(run_dir, env="OtherPendulum-v0").learn(20, show=False)
        config = load_config(run_dir / "config.yaml")
        assert (config.env_id, config.env_kwargs) == ("OtherPendulum-v0", {})
    finally:
        gym.registry.pop("OtherPendulum-v0")
