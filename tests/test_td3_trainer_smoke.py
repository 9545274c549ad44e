"""train_td3: the actor learns once for every `policy_delay` steps of the critics."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


@pytest.mark.parametrize("policy_delay", [1, 3])
def test_actor_steps_are_delayed(policy_delay: int, tmp_path: Path) -> None:
    result = train_tiny("td3", tmp_path, policy_delay=policy_delay)
    learner = result.agent.learner
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    assert int(learner.critic_optimizer.steps) == learner.updates == (STEPS - 16) // 2
    assert int(learner.actor_optimizer.steps) == learner.updates // policy_delay


def test_actor_metrics_are_absent_while_the_actor_waits(tmp_path: Path) -> None:
    lines = read_metrics(train_tiny("td3", tmp_path, policy_delay=1000).run_dir)
    assert "critic_loss" in lines[-2] and not any("actor_loss" in line for line in lines)
    line = read_metrics(train_tiny("td3", tmp_path).run_dir)[-2]
    assert {"critic_loss", "actor_loss", "q_mean", "target_q_mean"} <= line.keys()
