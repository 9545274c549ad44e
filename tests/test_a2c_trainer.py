"""train_a2c: one gradient step for each rollout, with either optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_one_update_for_each_rollout(optimizer: str, tmp_path: Path) -> None:
    learner = train_tiny("a2c", tmp_path, vector_backend="sync", optimizer=optimizer).agent.learner
    assert learner.updates == STEPS // 16
    assert learner.optimizer.kind == optimizer
    assert bool((learner.optimizer.second_moment != (optimizer == "rmsprop")).any())


def test_every_metric_of_the_algorithm_is_logged(tmp_path: Path) -> None:
    line = read_metrics(train_tiny("a2c", tmp_path).run_dir)[-2]
    names = {"loss", "policy_loss", "value_loss", "entropy", "grad_norm", "explained_variance", "learning_rate"}
    assert names <= line.keys()
    assert not {"approx_kl", "clip_fraction"} & line.keys(), "nothing is clipped here"


def test_continuous_actions_train_too(tmp_path: Path) -> None:
    result = train_tiny("a2c", tmp_path, env_id="Pendulum-v1", num_envs=2)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
