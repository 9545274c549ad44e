"""train_td7: trials and copies of a whole run, with one environment and with two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl_training.errors import ConfigError
from rl_training.runtime.agent import Agent
from rl_training.runtime.workflows import evaluate_checkpoint
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


@pytest.mark.parametrize("num_envs", [1, 2])
def test_episodes_reach_the_learner_and_its_kept_policy_is_saved(num_envs: int, tmp_path: Path) -> None:
    limit = {"env_kwargs": {"max_episode_steps": 8}, "num_envs": num_envs}
    result = train_tiny("td7", tmp_path, embedding_size=4, copy_every=5, **limit)
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates >= (STEPS - 16) // 2
    assert learner.trials.best is not None and learner.trials.best < 0
    assert learner.trials.started_at > 16
    assert {"embedding_loss", "critic_loss", "q_mean"} <= read_metrics(result.run_dir)[-2].keys()
    loaded = Agent.load(load_checkpoint(result.checkpoint)).learner
    obs = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(loaded.act(obs, explore=False).actions, learner.kept.act(obs))


def test_both_policies_can_be_evaluated(tmp_path: Path) -> None:
    limit = {"env_kwargs": {"max_episode_steps": 8}}
    result = train_tiny("td7", tmp_path, embedding_size=4, actor_learning_rate=0.05, **limit)
    kept, last, usual = (
        evaluate_checkpoint(result.checkpoint, episodes=2, policy=policy).mean_return
        for policy in ("kept", "last", None)
    )
    assert kept == usual != last
    with pytest.raises(ConfigError, match=r"policy: 'best' is not a policy of td7, expected one of kept, last"):
        evaluate_checkpoint(result.checkpoint, policy="best")


def test_an_algorithm_with_one_policy_has_no_choice(tmp_path: Path) -> None:
    result = train_tiny("sac", tmp_path)
    with pytest.raises(ConfigError, match=r"policy: 'last' is not a policy of sac, which has one policy, leave it out"):
        evaluate_checkpoint(result.checkpoint, policy="last")
