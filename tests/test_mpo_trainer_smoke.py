"""train_mpo: policy, critic and dual variables learn together; a checkpoint and an evaluation at the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training.runtime.workflows import evaluate_checkpoint
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, some_observations, train_tiny


@pytest.mark.parametrize("penalty_kl", [None, 1e-3])
def test_run_moves_all_three_and_reports_them(penalty_kl: float | None, tmp_path: Path) -> None:
    result = train_tiny("mpo", tmp_path, penalty_kl=penalty_kl, num_action_samples=4)
    learner = result.agent.learner
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    for optimizer in (learner.actor_optimizer, learner.critic_optimizer, learner.dual_optimizer):
        assert int(optimizer.steps) == learner.updates == (STEPS - 16) // 2
    line = read_metrics(result.run_dir)[-2]
    assert {"critic_loss", "actor_loss", "q_mean", "target_q_mean", "temperature", "improvement_kl"} <= line.keys()


def test_checkpoint_evaluates_as_the_run_did(tmp_path: Path) -> None:
    result = train_tiny("mpo", tmp_path, n_step=3, prioritized=True)
    again = evaluate_checkpoint(result.run_dir, episodes=1)
    assert again.returns == result.evaluation.returns


def test_the_agent_acts_by_its_mean_and_explores_by_its_own_spread(tmp_path: Path) -> None:
    learner = train_tiny("mpo", tmp_path, initial_log_std=-2.0).agent.learner
    observations = np.tile(some_observations("mpo", 1), (5000, 1))
    with torch.no_grad():
        mean, log_std = learner.model.actor(torch.from_numpy(observations[:1]))
    np.testing.assert_allclose(learner.act(observations, explore=False).actions, mean.expand(5000, 1), atol=1e-6)
    sampled = learner.act(observations, explore=True).actions
    assert sampled.dtype == np.float32 and np.abs(sampled).max() <= 1.0
    inside = np.abs(sampled) < 1.0
    expected = (mean + log_std.exp() * torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0))).clamp(-1, 1)
    assert inside.mean() == pytest.approx((expected.abs() < 1).float().mean().item(), abs=0.03)
    assert sampled.mean() == pytest.approx(expected.mean().item(), abs=0.02)
    assert sampled.std() == pytest.approx(expected.std().item(), rel=0.06)
