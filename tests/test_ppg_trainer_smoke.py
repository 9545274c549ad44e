"""train_ppg: how many steps of which phase a run takes, and what its metric lines say of each."""

from __future__ import annotations

from pathlib import Path

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny

ROLLOUTS, MINIBATCHES, EPOCHS = STEPS // 16, 2, 2
POLICY_METRICS = {"loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
AUXILIARY_METRICS = {"auxiliary_loss", "auxiliary_head_loss", "auxiliary_value_loss", "auxiliary_kl"}
PHASES = {"policy_phases": 3, "auxiliary_epochs": 4, "auxiliary_minibatch_size": 24, "vector_backend": "sync"}


def test_auxiliary_metrics_are_only_on_the_lines_of_their_phase(tmp_path: Path) -> None:
    lines = read_metrics(train_tiny("ppg", tmp_path, **PHASES).run_dir)
    trained = [line for line in lines if line["kind"] == "train"]
    assert len(trained) == ROLLOUTS
    for number, line in enumerate(trained, start=1):
        assert POLICY_METRICS | {"explained_variance", "learning_rate"} <= line.keys()
        assert AUXILIARY_METRICS & line.keys() == (AUXILIARY_METRICS if number == 3 else set())


def test_gradient_steps_of_both_phases(tmp_path: Path) -> None:
    learner = train_tiny("ppg", tmp_path, **PHASES).agent.learner
    assert learner.updates == ROLLOUTS == 4
    assert int(learner.policy_optimizer.steps) == ROLLOUTS * EPOCHS * MINIBATCHES
    assert learner.auxiliary_phases.value == 1
    assert int(learner.auxiliary_optimizer.steps) == 4 * (3 * 16 // 24)
    assert len(learner.cache) == 1


def test_continuous_actions_train_too(tmp_path: Path) -> None:
    settings = {"env_id": "Pendulum-v1", "normalize_rewards": True, "normalize_observations": True}
    result = train_tiny("ppg", tmp_path, **settings)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert {"return_normalizer", "cache", "auxiliary_phases"} <= result.agent.learner.state_dict()["parts"].keys()
