"""Runs kept together: config, metrics and checkpoints of each in a directory of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training import ExperimentManager
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.manager import RunRecord
from rl_training.telemetry.metric_lines import without_wall_clock
from tiny_runs import EVERY_ALGORITHM, STEPS, tiny_config


def run_tiny(tmp_path: Path, algorithm: str = "ppo", **settings: Any) -> RunRecord:
    return ExperimentManager(tmp_path).run(tiny_config(algorithm, "elsewhere", **settings), show=False)


@EVERY_ALGORITHM
def test_run_keeps_config_metrics_and_checkpoints_together(algorithm: str, tmp_path: Path) -> None:
    record = run_tiny(tmp_path, algorithm, checkpoint_every=32)
    assert record.path.parent == tmp_path and record.status == "finished"
    assert record.result is not None and record.env_steps == record.result.env_steps
    assert record.config.algo == algorithm and record.config == record.result.agent.config
    assert {"config.yaml", "metrics.jsonl", "run.json", "checkpoints"} <= {path.name for path in record.path.iterdir()}
    assert record.latest == record.checkpoints()[0] and record.best in record.checkpoints()
    assert all(path.is_relative_to(record.path) for path in record.checkpoints())
    training, evaluation = record.metrics("train"), record.metrics("eval")
    assert training and len(evaluation) == 1 and len(record.metrics()) == len(training) + 1
    assert evaluation[-1]["eval_mean_return"] == record.result.evaluation.mean_return


@EVERY_ALGORITHM
def test_record_of_another_process_evaluates_and_resumes(algorithm: str, tmp_path: Path) -> None:
    made = run_tiny(tmp_path, algorithm)
    record = ExperimentManager(tmp_path).open(made.name)
    assert record == made and record.result is None
    assert record.evaluate(episodes=1) == made.result.evaluation
    assert record.evaluate("best", episodes=1).summary()["episodes"] == 1
    longer = record.resume(STEPS * 2, show=False)
    assert longer.path == record.path and longer.env_steps > STEPS
    assert record.config.total_timesteps == STEPS * 2 and record.env_steps == longer.env_steps


def test_seeds_make_a_run_each_and_repeat_what_a_single_run_does(tmp_path: Path) -> None:
    manager = ExperimentManager(tmp_path / "many")
    records = manager.run(tiny_config("a2c", tmp_path), ["gamma=0.9"], seeds=[3, 4], show=False)
    assert [record.config.seed for record in records] == [3, 4]
    assert [record.config.algo_kwargs.gamma for record in records] == [0.9, 0.9]
    assert {run.name for run in manager.runs()} == {record.name for record in records}
    alone = ExperimentManager(tmp_path / "one").run(tiny_config("a2c", tmp_path), {"gamma": 0.9, "seed": 4}, show=False)
    lines = [[without_wall_clock(line) for line in record.metrics()] for record in (records[1], alone)]
    assert lines[0] == lines[1] != [without_wall_clock(line) for line in records[0].metrics()]


def test_all_seeds_are_checked_before_the_first_run(tmp_path: Path) -> None:
    manager = ExperimentManager(tmp_path / "runs")
    with pytest.raises(ConfigError, match="seed"):
        manager.run(tiny_config("ppo", tmp_path), seeds=[0, -1])
    assert manager.runs() == []


def test_same_name_twice_is_two_runs_newest_first(tmp_path: Path) -> None:
    for _ in range(2):
        run_tiny(tmp_path, run_name="twin")
    manager = ExperimentManager(tmp_path)
    assert [record.name for record in manager.runs()] == ["twin-2", "twin"]
    assert manager.open("latest").name == "twin-2"


def test_open_names_the_nearest_run(tmp_path: Path) -> None:
    manager = ExperimentManager(tmp_path)
    with pytest.raises(CheckpointError, match="it has no runs yet"):
        manager.open("latest")
    run_tiny(tmp_path, run_name="walker")
    with pytest.raises(CheckpointError, match="did you mean 'walker'"):
        manager.open("walkr")


def test_stopped_run_is_interrupted_until_it_is_resumed(tmp_path: Path) -> None:
    config = tiny_config("ppo", tmp_path)
    record = ExperimentManager(tmp_path).run(config, callback=lambda progress: False, show=False)
    assert record.status == "interrupted" and record.metrics("eval") == []
    with pytest.raises(CheckpointError, match="no best checkpoint"):
        record.best
    assert record.resume(show=False).status == "finished"


def test_presets_run_by_name(tmp_path: Path) -> None:
    record = ExperimentManager(tmp_path).run("ppo/cartpole", ["total_timesteps=256", "eval_episodes=1"], show=False)
    assert record.config.env_id == "CartPole-v1" and record.config.output_dir == str(tmp_path)
