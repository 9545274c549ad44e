"""train_d4pg: a whole run on Pendulum, and the line a user sees when its support does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.runtime.d4pg_trainer import train_d4pg
from rl_training.telemetry.metric_lines import read_metrics
from tiny_runs import STEPS, tiny_config, train_tiny


def test_metrics_and_updates_of_a_run(tmp_path: Path) -> None:
    result = train_tiny("d4pg", tmp_path)
    learner = result.agent.learner
    assert result.env_steps == STEPS and result.evaluation.lengths == (200,)
    steps = (learner.critic_optimizer.steps, learner.actor_optimizer.steps)
    assert [int(count) for count in steps] == [learner.updates] * 2 == [(STEPS - 16) // 2] * 2
    line = read_metrics(result.run_dir)[-2]
    expected = {"critic_loss", "actor_loss", "target_q_mean", "q_value_mean", "support_clipped"}
    assert expected <= line.keys()
    assert line["actor_loss"] == pytest.approx(-line["q_value_mean"], abs=5.0)


def test_all_options_together(tmp_path: Path) -> None:
    result = train_tiny("d4pg", tmp_path, prioritized=True, n_step=3, num_envs=2, noise_type="ou", gradient_steps=-1)
    assert result.agent.learner.updates > 20 and result.evaluation.mean_return < 0


@pytest.mark.parametrize(("low", "high", "lines"), [(-1.0, 1.0, 1), (-2000.0, 0.0, 0)])
def test_a_support_that_does_not_fit_is_told_once(
    low: float, high: float, lines: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config("d4pg", tmp_path, support_low=low, support_high=high, n_step=1)
    result = train_d4pg(config)
    shown = capsys.readouterr().err
    assert shown.count("outside the support") == lines
    shares = [line["support_clipped"] for line in read_metrics(result.run_dir) if "support_clipped" in line]
    assert len(shares) > 2 and all((share > 0.02) == bool(lines) for share in shares)
