"""train_tqc: updates and quantiles of a whole run."""

from __future__ import annotations

from pathlib import Path

import torch

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_metrics_updates_and_quantiles_of_a_run(tmp_path: Path) -> None:
    result = train_tiny(
        "tqc", tmp_path, num_critics=3, num_quantiles=4, dropped_quantiles=1, prioritized=True, n_step=2
    )
    learner = result.agent.learner
    assert result.env_steps == STEPS and learner.updates == (STEPS - 16) // 2
    assert learner.model.quantiles(torch.zeros(2, 3), torch.zeros(2, 1)).shape == (3, 2, 4)
    expected = {"critic_loss", "actor_loss", "temperature", "temperature_loss", "entropy", "q_mean"}
    assert expected <= read_metrics(result.run_dir)[-2].keys()
