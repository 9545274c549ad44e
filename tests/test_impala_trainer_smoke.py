"""train_impala: what its metric lines say, how many gradient steps a run takes, and every kind of action."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.runtime.workflows import evaluate_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_every_metric_of_the_algorithm_is_logged(tmp_path: Path) -> None:
    result = train_tiny("impala", tmp_path, vector_backend="sync")
    line = read_metrics(result.run_dir)[-2]
    names = {"loss", "policy_loss", "value_loss", "entropy", "rho_mean", "rho_clip_fraction", "approx_kl"}
    assert names | {"grad_norm", "explained_variance", "learning_rate"} <= line.keys()
    assert 0 < line["entropy"] <= 0.694, "two actions have at most ln 2"


def test_fresh_rollouts_have_importance_weight_one(tmp_path: Path) -> None:
    """What acted (in NumPy) and what learns (in torch) are the same policy, to the last digits of float32."""
    result = train_tiny("impala", tmp_path, learning_rate=0.05, optimizer="adam", normalize_observations=True)
    for line in read_metrics(result.run_dir):
        if line["kind"] == "train":
            assert line["rho_mean"] == pytest.approx(1, abs=1e-4)
            assert line["rho_clip_fraction"] == 0


@pytest.mark.parametrize("num_minibatches", [1, 2])
def test_gradient_steps_are_rollouts_times_minibatches(num_minibatches: int, tmp_path: Path) -> None:
    learner = train_tiny(
        "impala", tmp_path, vector_backend="sync", optimizer="adam", num_envs=2, num_steps=8,
        num_minibatches=num_minibatches,
    ).agent.learner  # fmt: skip
    assert learner.updates == STEPS // 16
    assert int(learner.optimizer.steps) == num_minibatches * learner.updates


def test_evaluation_of_the_checkpoint_is_deterministic(tmp_path: Path) -> None:
    result = train_tiny("impala", tmp_path)
    first, second = (evaluate_checkpoint(result.run_dir, episodes=3, seed=5) for _ in range(2))
    assert first.returns == second.returns and len(first.returns) == 3


def test_continuous_actions_train_too(tmp_path: Path) -> None:
    result = train_tiny("impala", tmp_path, env_id="Pendulum-v1", normalize_rewards=True, normalize_observations=True)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert {"return_normalizer", "model"} <= result.agent.learner.state_dict()["parts"].keys()
