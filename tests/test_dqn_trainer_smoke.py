"""train_dqn: updates, targets and replay data of a whole run, and all its options at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rl_training.storage.checkpoints import load_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_metrics_updates_and_replay_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("dqn", tmp_path, vector_backend="sync")
    assert result.env_steps == STEPS
    # A round every 2 of the steps from 16 (where learning starts) to 64.
    assert result.agent.learner.updates == (STEPS - 16) // 2
    assert {"loss", "q_mean", "target_q_mean", "grad_norm"} <= read_metrics(result.run_dir)[-2].keys()
    assert sum(ref.stop - ref.start for ref in load_checkpoint(result.checkpoint).segments) == STEPS


@pytest.mark.parametrize("settings", [{"target_update_every": 32}, {"tau": 1.0}, {"target_update_every": 1000}])
def test_target_network_follows_as_told(settings: dict[str, float], tmp_path: Path) -> None:
    learner = train_tiny("dqn", tmp_path, vector_backend="sync", learning_rate=0.01, **settings).agent.learner
    pairs = zip(learner.target.module.parameters(), learner.model.parameters(), strict=True)
    same = all(torch.equal(mine, theirs) for mine, theirs in pairs)
    # After the last copy at step 32 (or none at all) the online network went on learning.
    assert same == ("tau" in settings)


def test_all_options_together(tmp_path: Path) -> None:
    result = train_tiny(
        "dqn", tmp_path, double=True, dueling=True, prioritized=True, n_step=3, num_envs=2, gradient_steps=-1
    )
    assert result.agent.learner.updates > 20 and result.evaluation.mean_return > 0
