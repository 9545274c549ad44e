"""A run does as many whole rounds as fit into its budget, at least one, and its result says what is left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, tiny_config, write_config
from rl_training.envs.factory import make_vector_env
from rl_training.errors import ConfigError
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import list_checkpoints
from tiny_runs import managed
from tiny_runs import tiny_config as tiny_train_config

REFUSED = r"total_timesteps: 7 is less than one step for each of the 8 environments; use at least 8 steps or fewer"


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "dqn", "sac"])
def test_more_envs_than_steps_is_refused_before_there_is_a_run(algorithm: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_envs": 8, "learning_starts": 0} if algorithm in ("dqn", "sac") else {"num_envs": 8}
    agent = managed(algorithm, tmp_path / "runs", **settings)
    with pytest.raises(ConfigError, match=REFUSED):
        agent.learn(7, show=False)
    with pytest.raises(ConfigError, match=REFUSED):
        train(tiny_train_config(algorithm, tmp_path / "runs", total_timesteps=7, **settings), show=False)
    assert not (tmp_path / "runs").exists()
    assert agent.learn(8, show=False).env_steps == 8


def test_the_envs_of_the_caller_count(tmp_path: Path) -> None:
    envs = make_vector_env("CartPole-v1", 8)
    agent = managed("ppo", tmp_path / "runs", envs)
    with pytest.raises(ConfigError, match=REFUSED):
        agent.learn(7, show=False)
    assert not (tmp_path / "runs").exists()
    envs.close()


def test_a_stored_run_with_more_envs_than_steps_is_not_refused(tmp_path: Path) -> None:
    """Older versions made such runs. There is nothing left to train, but the run ends like any other."""
    trained = train(tiny_train_config("ppo", tmp_path, num_envs=8), show=False)
    first = list_checkpoints(trained.run_dir, "resume")[-1]
    result = resume(first, total_timesteps=7, show=False)
    assert (result.env_steps, result.unused_steps, result.interrupted) == (0, 7, False)
    assert result.evaluation is not None and result.unused.startswith("less than a quarter of a rollout")


@pytest.mark.parametrize("by", ["yaml", "set"])
def test_the_command_line_refuses_more_envs_than_steps(by: str, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "tiny.yaml", tiny_config("ppo", num_envs=8, **{"total_timesteps": 7} if by == "yaml" else {})
    )
    options = ["--set", "total_timesteps=7"] if by == "set" else []
    ended = call("train", config, *options, "--output-dir", tmp_path / "runs", "--quiet")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert "error: total_timesteps: 7 is less than one step for each of the 8 environments" in ended.err
    assert not (tmp_path / "runs").exists()


def test_a_rollout_remainder_is_not_used_and_said(tmp_path: Path) -> None:
    """Rollouts are 2 * 32 steps. After one of them, 15 steps are less than a quarter of the next."""
    settings = tiny_config("ppo", num_envs=2, total_timesteps=79)
    config = write_config(tmp_path / "tiny.yaml", settings)
    ended = call("train", config, "--output-dir", tmp_path / "runs", "--quiet")
    assert ended.code == 0
    assert "64 of 79" in ended.out and "15 steps, less than a quarter of a rollout (num_steps * num_envs)" in ended.out
    as_json = call("train", config, "--output-dir", tmp_path / "runs", "--quiet", "--json").json
    assert (as_json["env_steps"], as_json["unused_steps"]) == (64, 15)


def test_next_step_envs_may_leave_more_than_a_multiple_of_the_rollout(tmp_path: Path) -> None:
    """With native envs, the step after the end of an episode is not a transition, so rollouts have uneven sizes."""
    config = tiny_train_config(
        "ppo", tmp_path, num_envs=2, num_steps=128, minibatch_size=64, total_timesteps=300, vector_backend="native"
    )
    result = train(config, show=False)
    assert result.env_steps + result.unused_steps == 300
    # One rollout of 256 rows, of which some are resets. What is left is too little for a second one.
    assert 236 < result.env_steps < 256
    assert result.unused.startswith("less than a quarter of a rollout")


def test_a_replay_remainder_is_said(tmp_path: Path) -> None:
    result = train(tiny_train_config("dqn", tmp_path, num_envs=3, total_timesteps=65), show=False)
    assert (result.env_steps, result.unused_steps, result.unused) == (63, 2, "less than one step of every env")


def test_a_full_budget_and_a_stopped_run_have_nothing_to_say(tmp_path: Path) -> None:
    whole = train(tiny_train_config("dqn", tmp_path), show=False)
    assert (whole.unused_steps, whole.unused, "unused_steps" in whole.summary()) == (0, "", False)
    stopped = train(tiny_train_config("dqn", tmp_path), callback=lambda progress: False, show=False)
    assert stopped.interrupted and stopped.unused_steps == 0
    assert resume(stopped.run_dir, show=False).unused_steps == 0
