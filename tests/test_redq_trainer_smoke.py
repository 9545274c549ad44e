"""train_redq and train_droq: many updates per step in a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, train_tiny


@pytest.mark.parametrize("algorithm", ["redq", "droq"])
def test_twenty_updates_of_the_critics_and_one_of_the_actor_per_round(algorithm: str, tmp_path: Path) -> None:
    settings = {} if algorithm == "droq" else {"num_critics": 3}
    result = train_tiny(algorithm, tmp_path, train_frequency=16, **settings)
    learner, rounds = result.agent.learner, (STEPS - 16) // 16
    assert learner.updates == int(learner.critic_optimizer.steps) == 20 * rounds
    assert int(learner.actor_optimizer.steps) == int(learner.temperature_optimizer.steps) == rounds
    assert {"critic_loss", "q_mean", "actor_loss", "entropy"} <= read_metrics(result.run_dir)[-2].keys()
