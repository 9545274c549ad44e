"""train_appo: what its metric lines say, how many gradient steps a run takes, with a target policy and without."""

from __future__ import annotations

from pathlib import Path

import torch

from rl_training.runtime.workflows import evaluate_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_every_metric_of_the_algorithm_is_logged(tmp_path: Path) -> None:
    line = read_metrics(train_tiny("appo", tmp_path, vector_backend="sync").run_dir)[-2]
    names = {"loss", "policy_loss", "value_loss", "entropy", "rho_mean", "rho_clip_fraction", "approx_kl"}
    assert names | {"clip_fraction", "grad_norm", "explained_variance", "learning_rate"} <= line.keys()
    assert "kl_to_target" not in line, "a metric that was not computed is absent"
    assert 0 <= line["clip_fraction"] <= 1 and 0 < line["entropy"] <= 0.694


def test_gradient_steps_are_rollouts_times_epochs_times_minibatches(tmp_path: Path) -> None:
    learner = train_tiny(
        "appo", tmp_path, vector_backend="sync", num_envs=4, num_steps=4, num_minibatches=2, update_epochs=3
    ).agent.learner
    assert learner.updates == STEPS // 16
    assert int(learner.optimizer.steps) == 6 * learner.updates


def test_a_target_policy_trains_is_saved_and_lags_behind(tmp_path: Path) -> None:
    result = train_tiny("appo", tmp_path, vector_backend="sync", target_update_every=40, kl_coef=0.1)
    learner = result.agent.learner
    assert read_metrics(result.run_dir)[-2]["kl_to_target"] > 0
    assert "target" in learner.state_dict()["parts"]
    # Updates begin at 0, 16, 32 and 48 env steps: one copy, at 48, and then the policy went on.
    assert learner.target.copies.value == 1
    pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
    assert not all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_evaluation_of_the_checkpoint_is_deterministic(tmp_path: Path) -> None:
    result = train_tiny("appo", tmp_path, target_update_every=16)
    first, second = (evaluate_checkpoint(result.run_dir, episodes=3, seed=5) for _ in range(2))
    assert first.returns == second.returns and len(first.returns) == 3


def test_continuous_actions_train_too(tmp_path: Path) -> None:
    result = train_tiny("appo", tmp_path, env_id="Pendulum-v1", normalize_rewards=True, normalize_observations=True)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert {"return_normalizer", "model"} <= result.agent.learner.state_dict()["parts"].keys()
