"""train_qr_dqn: updates, targets and quantiles of a whole run, and all its options at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from config_cases import refused
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_metrics_updates_and_quantiles_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("qr_dqn", tmp_path, vector_backend="sync", num_quantiles=7)
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates == (STEPS - 16) // 2
    assert learner.model.quantiles(torch.zeros(2, 4)).shape == (2, 2, 7)
    assert {"loss", "q_mean", "target_q_mean", "grad_norm"} <= read_metrics(result.run_dir)[-2].keys()


@pytest.mark.parametrize("settings", [{"target_update_every": 32}, {"tau": 1.0}, {"target_update_every": 1000}])
def test_target_network_follows_as_told(settings: dict[str, float], tmp_path: Path) -> None:
    learner = train_tiny("qr_dqn", tmp_path, vector_backend="sync", learning_rate=0.01, **settings).agent.learner
    pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
    same = all(torch.equal(mine, theirs) for mine, theirs in pairs)
    # After the only copy, at step 33 (updates come at odd steps), or none at all, the online network went on learning.
    assert same == ("tau" in settings)
    assert learner.target.copies.value == (1 if settings.get("target_update_every") == 32 else 0)


def test_all_options_together(tmp_path: Path) -> None:
    options = {"double": True, "dueling": True, "prioritized": True, "n_step": 3}
    result = train_tiny("qr_dqn", tmp_path, num_envs=2, gradient_steps=-1, **options)
    assert result.agent.learner.updates > 20 and result.evaluation.mean_return > 0


def test_a_distribution_without_quantiles_is_refused() -> None:
    message = refused({"algo": "qr_dqn", "env_id": "Env-v0", "algo_kwargs": {"num_quantiles": 0}})
    assert message.startswith("algo_kwargs.num_quantiles: ") and "\n" not in message
