"""train_crossq: who learns when in a whole run."""

from __future__ import annotations

from pathlib import Path

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


def test_the_actor_and_the_temperature_learn_in_every_third_update(tmp_path: Path) -> None:
    result = train_tiny("crossq", tmp_path)
    learner = result.agent.learner
    assert learner.updates == (STEPS - 16) // 2 == int(learner.critic_optimizer.steps)
    assert int(learner.actor_optimizer.steps) == int(learner.temperature_optimizer.steps) == learner.updates // 3
    assert {"critic_loss", "q_mean", "target_q_mean"} <= read_metrics(result.run_dir)[-2].keys()
