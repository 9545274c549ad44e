"""`train --seeds 0,1 --jobs 2`: the same runs as one after another, stopped together, summed up once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, start_process, tiny_config, wait_for, write_config
from rl_training import ExperimentManager
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment import manager
from rl_training.experiment.manager import RunRecord
from rl_training.experiment.seed_runs import SeedRuns
from rl_training.storage.checkpoints import list_checkpoints, read_manifest
from rl_training.telemetry.metric_lines import without_wall_clock

SETTINGS: dict[str, Any] = {"eval_every": 48, "checkpoint_every": 48}


def lines(run: RunRecord) -> list[dict[str, Any]]:
    return [without_wall_clock(line) for line in run.metrics()]


def digests(run: RunRecord) -> dict[str, Any]:
    """Of the tensors; config.json names the output directory."""
    return {
        f"{path.name}/{name}": record
        for path in list_checkpoints(run.path)
        for name, record in read_manifest(path).files.items()
        if name.endswith(".safetensors")
    }


def test_side_by_side_is_the_same_as_one_after_another(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", **SETTINGS))
    outcome = call("train", config, "--seeds", "3,1", "--jobs", "2", "--output-dir", tmp_path / "two", "--json")
    assert outcome.code == 0, outcome.err
    summaries = [json.loads(line) for line in outcome.out.splitlines()]
    names = ["ppo-CartPole-v1-seed3", "ppo-CartPole-v1-seed1"]
    assert [Path(summary["run_dir"]).name for summary in summaries] == names  # in the order of --seeds
    assert "seed 3: finished in" in outcome.err and "(2 of 2 done)" in outcome.err

    one_by_one = ExperimentManager(tmp_path / "one").run(config, seeds=[3, 1], show=False)
    for alone, summary in zip(one_by_one, summaries, strict=True):
        together = RunRecord(Path(summary["run_dir"]))
        assert together.status == "finished" and lines(together) == lines(alone) and len(lines(alone)) > 4
        assert digests(together) == digests(alone) and len(digests(alone)) > 1
        assert alone.result is not None and alone.result.evaluation is not None
        assert summary["eval"] == alone.result.evaluation.summary()
        assert together.sessions[0]["command"] == alone.sessions[0]["command"]
    assert not (tmp_path / "two" / "train.log").exists()  # nothing was printed


def test_ctrl_c_stops_and_saves_all_runs(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", total_timesteps=10**7))
    runs = tmp_path / "runs"
    process = start_process("train", config, "--seeds", "0,1,2", "--jobs", "2", "--output-dir", runs)
    try:
        wait_for(
            lambda: len([path for path in runs.glob("*/metrics.jsonl") if path.stat().st_size > 500]) == 2,
            process,
            seconds=300,
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 75, err
    for seed in (0, 1):
        run = RunRecord(runs / f"ppo-CartPole-v1-seed{seed}")
        assert run.status == "interrupted" and run.env_steps > 0
        assert f"seed {seed}: stopped and saved; continue with: rl-training resume {run.path}" in err
    assert "not started: seeds 2" in err and not (runs / "ppo-CartPole-v1-seed2").exists()
    assert len([line for line in out.splitlines() if "ppo-CartPole-v1-seed" in line]) == 2  # one summary


def test_a_failed_seed_is_an_error_after_all_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a worker is tested with the launcher, in tests/zoo."""
    runs = SeedRuns((), {1: ("its process exited with code 13", 1)}, (), False)
    monkeypatch.setattr(manager, "train_side_by_side", lambda *_, **__: runs)
    with pytest.raises(RLTrainingError, match="seed 1 failed: its process exited with code 13"):
        ExperimentManager(tmp_path).run("ppo/cartpole", seeds=[0, 1], jobs=2, show=False)


def test_failures_keep_their_exit_code(tmp_path: Path) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo", env_id="Nothing-v0"))
    outcome = call("train", config, "--seeds", "0,1", "--jobs", "2", "--output-dir", tmp_path / "runs", "--quiet")
    assert outcome.code == 3 and outcome.out == ""
    assert sorted(line[:14] for line in outcome.err.splitlines()) == ["error: seed 0:", "error: seed 1:"]


def test_jobs_need_distinct_seeds_and_no_objects_of_this_process(tmp_path: Path) -> None:
    outcome = call("train", "ppo/cartpole", "--jobs", "2", "--output-dir", tmp_path)
    assert outcome.code == 2 and "pass --seeds" in outcome.err
    experiments = ExperimentManager(tmp_path)
    with pytest.raises(ConfigError, match="pass seeds"):
        experiments.run("ppo/cartpole", jobs=2)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="callback: cannot be used with jobs"):
        experiments.run("ppo/cartpole", seeds=[0, 1], jobs=2, callback=lambda progress: None)
    with pytest.raises(ConfigError, match="distinct"):
        experiments.run("ppo/cartpole", seeds=[0, 0], jobs=2)
    with pytest.raises(ConfigError, match="jobs"):
        experiments.run("ppo/cartpole", seeds=[0, 1], jobs=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "pipe"])
def test_a_log_that_leads_elsewhere_is_refused_before_a_process_starts(tmp_path: Path, kind: str) -> None:
    victim, runs = tmp_path / "victim", tmp_path / "runs"
    runs.mkdir()
    if kind != "dangling link":
        victim.write_text("mine")
        os.utime(victim, (1e9, 1e9))
    if kind == "hard link":
        os.link(victim, runs / "train.log")
    elif kind == "pipe":
        os.mkfifo(runs / "train.log")
    else:
        (runs / "train.log").symlink_to(victim)
    outcome = call("train", "ppo/cartpole", "--seeds", "0,1", "--jobs", "2", "--output-dir", runs, "--quiet")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1 and "train.log" in outcome.err
    assert victim.stat().st_mtime == 1e9 if kind != "dangling link" else not victim.exists()
    assert [path.name for path in runs.iterdir()] == ["train.log"]
