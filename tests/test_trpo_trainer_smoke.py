"""train_trpo: what its metric lines say, and that it takes every kind of action."""

from __future__ import annotations

from pathlib import Path

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny

ROLLOUTS, MINIBATCHES, EPOCHS = STEPS // 16, 2, 2


def test_every_metric_of_the_algorithm_is_logged(tmp_path: Path) -> None:
    lines = read_metrics(train_tiny("trpo", tmp_path, vector_backend="sync").run_dir)
    trained = [line for line in lines if line["kind"] == "train"]
    names = {"loss", "policy_loss", "value_loss", "entropy", "critic_grad_norm", "line_search_success"}
    for line in trained:
        assert names | {"line_search_steps", "explained_variance", "learning_rate"} <= line.keys()
        assert ("approx_kl" in line) == ("surrogate_improvement" in line) == (line["line_search_success"] > 0)
        assert line.get("approx_kl", 0.0) <= 0.01
        assert 1 <= line["line_search_steps"] <= 10
    assert any(line["line_search_success"] == 1 for line in trained)


def test_gradient_steps_of_the_critic_are_rollouts_times_epochs_times_minibatches(tmp_path: Path) -> None:
    learner = train_tiny("trpo", tmp_path, vector_backend="sync").agent.learner
    assert learner.updates == ROLLOUTS
    assert int(learner.critic_optimizer.steps) == ROLLOUTS * EPOCHS * MINIBATCHES


def test_continuous_actions_train_too(tmp_path: Path) -> None:
    result = train_tiny("trpo", tmp_path, env_id="Pendulum-v1", normalize_rewards=True, normalize_observations=True)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert {"return_normalizer", "model"} <= result.agent.learner.state_dict()["parts"].keys()
