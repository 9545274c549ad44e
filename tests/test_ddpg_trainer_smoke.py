"""train_ddpg: actor and critic both learn, with either kind of noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


@pytest.mark.parametrize("noise_type", ["gaussian", "ou"])
def test_metrics_and_updates_of_a_run(noise_type: str, tmp_path: Path) -> None:
    result = train_tiny("ddpg", tmp_path, noise_type=noise_type, num_envs=2)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    learner = result.agent.learner
    assert learner.updates == int(learner.actor_optimizer.steps) == int(learner.critic_optimizer.steps) > 20
    line = read_metrics(result.run_dir)[-2]
    assert {"critic_loss", "actor_loss", "q_mean", "target_q_mean"} <= line.keys()
    assert {"critic_grad_norm", "actor_grad_norm"} <= line.keys()


def test_prioritized_n_step_replay(tmp_path: Path) -> None:
    assert train_tiny("ddpg", tmp_path, prioritized=True, n_step=3).agent.learner.updates > 20
