"""train_naf: one network, one optimizer, every kind of noise, a checkpoint and an evaluation at the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training.runtime.workflows import evaluate_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, some_observations, train_tiny


@pytest.mark.parametrize("noise_type", ["gaussian", "ou", "precision"])
def test_run_learns_with_every_kind_of_noise(noise_type: str, tmp_path: Path) -> None:
    result = train_tiny("naf", tmp_path, noise_type=noise_type)
    learner = result.agent.learner
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert int(learner.optimizer.steps) == learner.updates == (STEPS - 16) // 2
    line = read_metrics(result.run_dir)[-2]
    assert {"loss", "q_mean", "target_q_mean", "grad_norm"} <= line.keys()


def test_checkpoint_evaluates_as_the_run_did(tmp_path: Path) -> None:
    result = train_tiny("naf", tmp_path, n_step=3, prioritized=True)
    again = evaluate_checkpoint(result.run_dir, episodes=1)
    assert again.returns == result.evaluation.returns


def test_the_agent_acts_by_the_mean_of_its_model(tmp_path: Path) -> None:
    learner = train_tiny("naf", tmp_path).agent.learner
    observations = some_observations("naf")
    with torch.no_grad():
        mean = learner.model.actor(torch.from_numpy(observations)).numpy()
    np.testing.assert_allclose(learner.act(observations, explore=False).actions, mean, atol=1e-6)
