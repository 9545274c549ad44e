"""train_ppo: what its metric lines say, and how many gradient steps a run takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny

ROLLOUTS, MINIBATCHES, EPOCHS = STEPS // 16, 2, 2


def test_every_metric_of_the_algorithm_is_logged(tmp_path: Path) -> None:
    line = read_metrics(train_tiny("ppo", tmp_path, vector_backend="sync").run_dir)[-2]
    names = {"loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
    assert names | {"explained_variance", "learning_rate"} <= line.keys()
    assert line["approx_kl"] >= 0 and 0 <= line["clip_fraction"] <= 1
    assert 0 < line["entropy"] <= 0.694, "two actions have at most ln 2"


def test_gradient_steps_are_rollouts_times_epochs_times_minibatches(tmp_path: Path) -> None:
    learner = train_tiny("ppo", tmp_path, vector_backend="sync").agent.learner
    assert learner.updates == ROLLOUTS
    assert int(learner.optimizer.steps) == ROLLOUTS * EPOCHS * MINIBATCHES


def test_target_kl_ends_an_update_early(tmp_path: Path) -> None:
    learner = train_tiny("ppo", tmp_path, vector_backend="sync", target_kl=1e-6, learning_rate=0.05).agent.learner
    # The first minibatch of a rollout is still on the policy that collected it: its KL is zero.
    assert learner.updates == ROLLOUTS
    assert ROLLOUTS <= int(learner.optimizer.steps) < ROLLOUTS * EPOCHS * MINIBATCHES


def test_learning_rate_falls_linearly_and_never_to_zero(tmp_path: Path) -> None:
    result = train_tiny("ppo", tmp_path, vector_backend="sync", learning_rate={"start": 1e-3, "end": 0.0})
    rates = [line["learning_rate"] for line in read_metrics(result.run_dir) if line["kind"] == "train"]
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3], rel=1e-5)


def test_continuous_actions_train_too(tmp_path: Path) -> None:
    result = train_tiny("ppo", tmp_path, env_id="Pendulum-v1", normalize_rewards=True, normalize_observations=True)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert {"return_normalizer", "model"} <= result.agent.learner.state_dict()["parts"].keys()
