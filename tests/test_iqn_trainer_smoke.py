"""train_iqn: updates, targets and fractions of a whole run, and its options."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from config_cases import refused
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny

FEW = {"num_taus": 4, "num_target_taus": 3, "num_acting_taus": 5, "num_cosines": 6}


def test_metrics_updates_and_fractions_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("iqn", tmp_path, vector_backend="sync", **FEW)
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates == (STEPS - 16) // 2
    assert learner.model.quantiles(torch.zeros(2, 4), torch.rand(2, 7)).shape == (2, 2, 7)
    assert {"loss", "q_mean", "target_q_mean", "grad_norm"} <= read_metrics(result.run_dir)[-2].keys()


@pytest.mark.parametrize("settings", [{"target_update_every": 32}, {"tau": 1.0}, {"target_update_every": 1000}])
def test_target_network_follows_as_told(settings: dict[str, float], tmp_path: Path) -> None:
    learner = train_tiny("iqn", tmp_path, vector_backend="sync", learning_rate=0.01, **FEW, **settings).agent.learner
    pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs) == ("tau" in settings)
    assert learner.target.copies.value == (1 if settings.get("target_update_every") == 32 else 0)


@pytest.mark.parametrize(
    "options",
    [
        {"double": True, "dueling": True, "prioritized": True, "n_step": 3},
        {"munchausen": True, "risk_level": 0.25, "dueling": True},
    ],
    ids=["of dqn", "of its own"],
)
def test_options_together(options: dict[str, float], tmp_path: Path) -> None:
    result = train_tiny("iqn", tmp_path, num_envs=2, gradient_steps=-1, **FEW, **options)
    assert result.agent.learner.updates > 20 and result.evaluation.mean_return > 0


@pytest.mark.parametrize("algo", ["iqn", "rainbow"])
def test_residual_blocks_are_refused(algo: str) -> None:
    message = refused({"algo": algo, "env_id": "Env-v0", "model": {"blocks": "simba"}})
    assert message == f"model.blocks: {algo} has no simba blocks; set model.blocks=mlp"
