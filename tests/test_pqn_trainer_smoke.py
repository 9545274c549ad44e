"""train_pqn: updates and metrics of a whole run, with its options."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_metrics_and_updates_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("pqn", tmp_path, vector_backend="sync", layer_norm=True, exploration={"start": 1.0, "end": 0.0})
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates == STEPS // 16
    assert any(isinstance(layer, nn.LayerNorm) for layer in learner.model.advantage)
    lines = [line for line in read_metrics(result.run_dir) if "loss" in line]
    assert {"q_mean", "target_q_mean", "target_std", "grad_norm", "exploration", "learning_rate"} <= lines[-1].keys()
    assert lines[0]["exploration"] > lines[-1]["exploration"]


def test_several_envs_with_normalized_rewards_and_observations(tmp_path: Path) -> None:
    result = train_tiny("pqn", tmp_path, num_envs=4, normalize_rewards=True, normalize_observations=True, q_lambda=1.0)
    assert result.agent.learner.updates > 0 and result.evaluation.mean_return > 0
    assert result.agent.learner.return_normalizer is not None
