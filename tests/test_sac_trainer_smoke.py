"""train_sac: the temperature is learned or fixed, as the config says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_temperature_is_learned_by_default(tmp_path: Path) -> None:
    result = train_tiny("sac", tmp_path, temperature_learning_rate=0.01)
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    lines = [line for line in read_metrics(result.run_dir) if "temperature" in line]
    assert {"critic_loss", "actor_loss", "temperature_loss", "entropy", "q_mean"} <= lines[-1].keys()
    # A fresh policy has more entropy than the target of -1, so the temperature comes down from 1.
    assert 0 < lines[-1]["temperature"] < lines[0]["temperature"] <= 1


def test_fixed_temperature_stays(tmp_path: Path) -> None:
    result = train_tiny("sac", tmp_path, temperature=0.2)
    lines = [line for line in read_metrics(result.run_dir) if "temperature" in line]
    assert [line["temperature"] for line in lines] == pytest.approx([0.2] * len(lines))
    assert not any("temperature_loss" in line for line in lines)


def test_actor_and_critic_step_together(tmp_path: Path) -> None:
    learner = train_tiny("sac", tmp_path, prioritized=True, n_step=2).agent.learner
    steps = [learner.actor_optimizer.steps, learner.critic_optimizer.steps, learner.temperature_optimizer.steps]
    assert [int(count) for count in steps] == [learner.updates] * 3 == [(STEPS - 16) // 2] * 3
