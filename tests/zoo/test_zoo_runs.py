"""Benchmarks that are run: skipped, resumed, killed, broken in one place, cut short; the table is the same."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import threading
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, start_process, wait_for
from rl_training.analysis.curves import read_curve
from rl_training.config.loading import load_config, save_config
from rl_training.errors import CheckpointError
from rl_training.experiment import launcher
from rl_training.experiment.jobs_display import JobsDisplay
from rl_training.experiment.launcher import Stopped
from rl_training.runtime import workflows
from rl_training.storage.checkpoints import list_checkpoints, read_manifest
from rl_training.storage.run_directory import create_run_directory, run_status
from rl_training.telemetry.metric_lines import read_metrics, without_wall_clock
from rl_training.zoo import runs
from rl_training.zoo.manifest import load_manifest
from rl_training.zoo.runs import (
    Job,
    is_done,
    note_failure,
    same_settings,
    settings,
    stored_failure,
    stored_score,
    train_and_score,
)
from waiting import DEADLINE_SECONDS
from zoo_helpers import STEPS, install_env, preset, row, store_run, write_manifest

CLOCK = ("minutes", "minutes_to_floor")


@pytest.fixture(autouse=True)
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_env(tmp_path / "env", monkeypatch)


def job_of(manifest: Path, seed: int = 0, fraction: float = 1.0, runs: str = "runs") -> Job:
    return Job(load_manifest(manifest).entries[0], seed, str(manifest.parent / runs), fraction)


def without_clock(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in table]


def lines_of(job: Job) -> list[dict[str, Any]]:
    return [without_wall_clock(line) for line in read_metrics(job.run_dir)]


def test_a_seed_is_trained_scored_by_the_rule_and_kept(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    job, seen = job_of(manifest), []

    def watch(env_steps: int) -> bool:
        seen.append(env_steps)
        return True

    train_and_score(job, watch)
    score = stored_score(job)
    assert score is not None and score["episodes"] == 100 and score["env_steps"] == seen[-1] == STEPS
    assert score["mean_return"] == 1.0, "the task is learned"
    before = (job.run_dir / "score.json").stat().st_mtime_ns
    train_and_score(job, watch)
    assert (job.run_dir / "score.json").stat().st_mtime_ns == before and len(seen) == STEPS // 128

    # A run that is finished and was not scored is scored, not trained again.
    (job.run_dir / "score.json").unlink()
    train_and_score(job, watch)
    assert stored_score(job) == score and len(seen) == STEPS // 128

    # Changed settings: the old run is set aside.
    (tmp_path / "quick.yaml").write_text(json.dumps(preset(eval_episodes=10)))
    other = job_of(manifest)
    assert stored_score(other) is None
    train_and_score(other)
    assert stored_score(other) is not None and (tmp_path / "runs" / "old-quick-seed0").is_dir()


def test_the_last_checkpoint_is_scored_on_the_seeds_of_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    sound = workflows.evaluate_checkpoint

    def noted(checkpoint: Path, **options: Any) -> Any:
        asked.append((read_manifest(checkpoint).env_steps, options))
        return sound(checkpoint, **options)

    monkeypatch.setattr(workflows, "evaluate_checkpoint", noted)
    job = job_of(write_manifest(tmp_path, {"quick": preset()}), seed=3)
    note_failure(job, "an earlier try")
    assert job.config.threads == 1, "runs side by side would fight over the cores"
    train_and_score(job)
    assert asked == [(STEPS, {"episodes": 100, "seed": 10_000})]
    assert stored_failure(job) is None, "what went wrong before is over"


def test_settings_of_the_algorithm_and_the_model_make_another_preset() -> None:
    cartpole = load_config("ppo/cartpole")
    assert same_settings(settings(cartpole), cartpole)
    for change in ({"gamma": 0.5}, {"model": {"hidden_sizes": [8]}}, {"num_envs": 9}, {"eval_every": 1}):
        assert not same_settings(settings(cartpole), load_config(cartpole, change)), change
    for per_run in ({"seed": 9}, {"threads": 2}, {"output_dir": "elsewhere"}):
        assert same_settings(settings(cartpole), load_config(cartpole, per_run)), per_run


def test_settings_without_effect_do_not_make_another_preset() -> None:
    uniform = load_config("sac/pendulum")
    prioritized = load_config(uniform, {"prioritized": True})
    for change in ({"importance_exponent": 0.4}, {"priority_exponent": 0.5}, {"priority_epsilon": 0.1}):
        assert same_settings(settings(load_config(uniform, change)), uniform), change
        assert not same_settings(settings(load_config(prioritized, change)), prioritized), change
    assert not same_settings(settings(prioritized), uniform)


def test_a_note_of_another_benchmark_that_found_the_run_in_use_is_gone_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_env(tmp_path / "env", monkeypatch)
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))

    def watch(env_steps: int) -> bool:
        note_failure(job, "in use by process 1")
        return True

    train_and_score(job, watch)
    assert stored_score(job) is not None and stored_failure(job) is None


def test_wherever_a_run_is_stopped_its_curve_and_score_are_those_of_one_that_was_not(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    whole, parts = job_of(manifest, runs="whole"), job_of(manifest, runs="parts")
    train_and_score(whole)
    for stop in (0, 700, 1_300):
        with pytest.raises(Stopped, match="stopped at env step"):
            train_and_score(parts, lambda env_steps, stop=stop: env_steps < stop)
        assert run_status(parts.run_dir) == "interrupted" and stored_score(parts) is None
    newest = list_checkpoints(parts.run_dir, "resume")[0]
    assert not read_manifest(newest).exact, "the stop was not at a checkpoint: going on from there would differ"
    train_and_score(parts)
    assert lines_of(parts) == lines_of(whole)
    same = {"wall_seconds": 0, "checkpoint": None}  # a manifest has the date
    first, second = ((stored_score(job) or {}) | same for job in (parts, whole))
    assert first == second and first["mean_return"] == 1.0


def test_a_run_that_died_before_its_first_save_starts_again(tmp_path: Path) -> None:
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))
    train_and_score(job)
    expected = lines_of(job)
    for path in list_checkpoints(job.run_dir):
        path.rename(tmp_path / path.name)
    (job.run_dir / "score.json").unlink()
    (job.run_dir / "run.json").write_text(json.dumps({"status": "running"}))
    train_and_score(job)
    assert lines_of(job) == expected and (tmp_path / "runs" / "old-quick-seed0").is_dir()


def test_a_finished_run_without_a_good_checkpoint_cannot_be_scored(tmp_path: Path) -> None:
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))
    train_and_score(job)
    (job.run_dir / "score.json").unlink()
    for path in list_checkpoints(job.run_dir):
        (path / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="finished, but no checkpoint verifies"):
        train_and_score(job)


def test_an_older_checkpoint_does_not_score_the_full_run(tmp_path: Path) -> None:
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))
    train_and_score(job)
    (job.run_dir / "score.json").unlink()
    newest = list_checkpoints(job.run_dir, "resume")[0]
    (newest / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=f"the last checkpoint, at step {STEPS:,}, is damaged"):
        train_and_score(job)


def test_a_run_goes_on_from_the_newest_checkpoint_that_is_not_damaged(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    whole, parts = job_of(manifest, runs="whole"), job_of(manifest, runs="parts")
    train_and_score(whole)
    with pytest.raises(Stopped):
        train_and_score(parts, lambda env_steps: env_steps < 1_300)
    damaged = next(path for path in list_checkpoints(parts.run_dir, "resume") if path.name.endswith("1024"))
    largest = max((path for path in damaged.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    train_and_score(parts)
    assert lines_of(parts) == lines_of(whole)


def test_a_score_without_its_numbers_is_ignored_and_made_again(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    job = job_of(manifest)
    train_and_score(job)
    score = stored_score(job)
    assert score is not None
    for damaged in (
        {key: value for key, value in score.items() if key != "mean_return"},
        score | {"mean_return": None},
        {key: value for key, value in score.items() if key != "wall_seconds"},
    ):
        (job.run_dir / "score.json").write_text(json.dumps(damaged))
        assert stored_score(job) is None
    outcome = call("zoo", "table", manifest, "--seeds", 1, "--output-dir", tmp_path / "runs", "--json")
    assert outcome.code == 0 and outcome.json[0]["seeds"] == 0, outcome.err
    train_and_score(job)
    assert stored_score(job) == score


@pytest.mark.parametrize("changes", [{"eval_episodes": 10}, {}])
def test_a_run_that_another_process_has_is_not_set_aside(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for its other settings nor because it has no checkpoint yet: its owner goes by the path, and would save
    into whatever takes its place."""
    monkeypatch.setattr(runs, "PATIENCE_SECONDS", 0.0)
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))
    run = create_run_directory(job.output_dir, job.run_name)
    save_config(job.config, run.path / "config.yaml")
    now = job_of(write_manifest(tmp_path, {"quick": preset(**changes)}))
    with run.lock(), pytest.raises(CheckpointError, match=r"is in use by process .*; wait for it or stop it"):
        train_and_score(now)
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == [run.name]


def test_a_job_has_one_owner_from_before_its_run_exists_until_it_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the owner, a second benchmark would train `quick-seed0-2` and score the unfinished `quick-seed0`."""
    monkeypatch.setattr(runs, "PATIENCE_SECONDS", 0.0)
    job, refused = job_of(write_manifest(tmp_path, {"quick": preset()})), []
    train, evaluate = workflows.train, workflows.evaluate_checkpoint

    def second_benchmark() -> None:
        with pytest.raises(CheckpointError, match=r"quick-seed0 is in use by process \d+; wait for it or stop it"):
            train_and_score(job)
        refused.append(job.run_dir.exists())

    def train_beside(*args: Any, **options: Any) -> Any:
        second_benchmark()
        return train(*args, **options)

    def evaluate_beside(*args: Any, **options: Any) -> Any:
        second_benchmark()
        return evaluate(*args, **options)

    monkeypatch.setattr(workflows, "train", train_beside)
    monkeypatch.setattr(workflows, "evaluate_checkpoint", evaluate_beside)
    train_and_score(job)
    assert refused == [False, True], "refused before there was a run, and while it was scored"
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == ["quick-seed0"]
    assert stored_score(job) is not None


def test_a_run_that_another_process_made_in_the_meantime_is_not_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rl-training train` does not know of benchmarks, so it may take the name of a run."""
    job, train = job_of(write_manifest(tmp_path, {"quick": preset()})), workflows.train

    def train_second(*args: Any, **options: Any) -> Any:
        create_run_directory(job.output_dir, job.run_name)
        return train(*args, **options)

    monkeypatch.setattr(workflows, "train", train_second)
    with pytest.raises(CheckpointError, match=r"another process made this run; .*quick-seed0-2 was trained"):
        train_and_score(job)
    assert stored_score(job) is None


def test_a_score_counts_only_for_the_step_and_checkpoint_it_was_made_from(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    job = job_of(manifest)
    train_and_score(job)
    score, info = stored_score(job), json.loads((job.run_dir / "run.json").read_text())
    newest = list_checkpoints(job.run_dir, "resume")[0]
    assert score is not None and score["checkpoint"]["name"] == newest.name

    def seeds_in_table() -> int:
        outcome = call("zoo", "table", manifest, "--seeds", 1, "--output-dir", tmp_path / "runs", "--json")
        assert outcome.code == 0, outcome.err
        return int(outcome.json[0]["seeds"])

    assert seeds_in_table() == 1
    for change in ({"status": "interrupted"}, {"status": "failed"}, {"env_steps": STEPS - 128}):
        (job.run_dir / "run.json").write_text(json.dumps(info | change))
        assert seeds_in_table() == 0 and not is_done(job), change
    (job.run_dir / "run.json").write_text(json.dumps(info))
    for change in ({"env_steps": 1_024}, {"checkpoint": score["checkpoint"] | {"manifest": "0" * 64}}):
        (job.run_dir / "score.json").write_text(json.dumps(score | change))
        assert seeds_in_table() == 0 and not is_done(job), change
    # A score of an older version does not name its checkpoint.
    older = {key: value for key, value in score.items() if key != "checkpoint"}
    (job.run_dir / "score.json").write_text(json.dumps(older))
    assert seeds_in_table() == 1
    # The checkpoint may be deleted to save space.
    (job.run_dir / "score.json").write_text(json.dumps(score))
    newest.rename(tmp_path / "deleted")
    assert seeds_in_table() == 1


HOSTILE_NUMBERS = (None, True, "x", [], {}, 10**400, -(10**30), "1e999")


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("score.json", "mean_return"), ("score.json", "env_steps"), ("score.json", "checkpoint"),
        ("run.json", "env_steps"), ("run.json", "wall_seconds"), ("run.json", "status"),
    ],
)  # fmt: skip
def test_hostile_numbers_in_the_files_of_a_run_do_not_break_a_table(file: str, key: str, tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"quick": preset()})
    entry = load_manifest(manifest).entries[0]
    job = store_run(entry, 0, tmp_path / "runs", {1_024: 0.5, STEPS: 1.0}, "finished")
    score = {"mean_return": 1.0, "env_steps": STEPS, "wall_seconds": 1.0, "settings": settings(entry.preset)}
    (job.run_dir / "score.json").write_text(json.dumps(score))
    content = json.loads((job.run_dir / file).read_text())
    for value in HOSTILE_NUMBERS:
        text = json.dumps(content | {key: value}).replace('"1e999"', "1e999")  # infinity, though it is valid JSON
        (job.run_dir / file).write_text(text)
        for more in (["--json"], ["--budget-fraction", 0.5]):
            outcome = call("zoo", "table", manifest, "--seeds", 1, "--output-dir", tmp_path / "runs", *more)
            assert outcome.code == 0 and not re.search(r"\b(nan|inf|NaN|Infinity)\b", outcome.out), (value, outcome)


def test_a_pipe_in_place_of_the_metrics_is_not_waited_for(tmp_path: Path) -> None:
    entry = load_manifest(write_manifest(tmp_path, {"quick": preset()})).entries[0]
    job = store_run(entry, 0, tmp_path / "runs", {1_024: 0.5})
    (job.run_dir / "metrics.jsonl").unlink()
    os.mkfifo(job.run_dir / "metrics.jsonl")
    assert read_curve(job.run_dir).steps.size == 0
    with pytest.raises(CheckpointError, match=r"metrics.jsonl: refused, it is not a regular file"):
        read_metrics(job.run_dir)


def test_a_file_of_a_terabyte_without_content_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        file.truncate(2**40)  # sparse: it takes no space
    assert read_curve(tmp_path).steps.size == 0
    with pytest.raises(CheckpointError, match=r"metrics.jsonl: refused, it has more than 1,073,741,824 bytes"):
        read_metrics(tmp_path)


def test_an_overlong_name_is_no_manifest_and_no_band(tmp_path: Path) -> None:
    for command in (("zoo", "list", "x" * 300), ("zoo", "table", "x" * 5_000)):
        outcome = call(*command)
        assert outcome.code == 2 and outcome.err.count("\n") == 1 and "no such manifest" in outcome.err
    outcome = call("check", "ppo/cartpole", "--band", "y" * 300)
    assert outcome.code == 2 and outcome.err.count("\n") == 1, outcome.err


@pytest.mark.parametrize("stop", [STEPS, 700])
def test_a_checkpoint_of_other_settings_is_neither_scored_nor_continued(stop: int, tmp_path: Path) -> None:
    """Even if config.yaml matches: the score would name settings that were not used in training."""
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))
    with contextlib.suppress(Stopped):
        train_and_score(job, lambda env_steps: env_steps < stop)
    now = job_of(write_manifest(tmp_path, {"quick": preset(eval_episodes=10)}))
    save_config(now.config, job.run_dir / "config.yaml")
    steps = list_checkpoints(job.run_dir)
    with pytest.raises(CheckpointError, match=r"step-\d+: its settings differ .*; move .* away"):
        train_and_score(now)
    assert stored_score(now) is None and list_checkpoints(job.run_dir) == steps


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"kind": "eval", "env_st',
        b"\x00\xff\xfe",
        b"[1, 2]",
        b"[" * 99_999,
        b'{"kind": "eval", "eval_mean_return": 3}',
        b'{"kind": "eval", "env_steps": "x", "eval_mean_return": 3}',
        b'{"kind": "train", "wall_seconds": [1]}',
        b'{"kind": "eval", "env_steps": 15, "eval_mean_return": NaN}',
        b'{"kind": "eval", "env_steps": 1e999, "eval_mean_return": 3}',
        b'{"kind": "eval", "env_steps": 15, "eval_mean_return": 1%s}' % (b"0" * 400),
        b'{"kind": "eval", "env_steps": 15, "note": "%s", "eval_mean_return": 3}' % (b"x" * 2**21),
    ],
)
def test_a_damaged_metric_line_is_skipped(damaged: bytes, tmp_path: Path) -> None:
    lines = [
        b'{"kind": "eval", "env_steps": 10, "eval_mean_return": 1.0}',
        damaged,
        b'{"kind": "train", "env_steps": 20, "wall_seconds": 4.0}',
        b'{"kind": "eval", "env_steps": 20, "eval_mean_return": 2.0}',
        b'{"kind": "eval", "env_steps": 30, "eval_mea',  # torn by a kill
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    curve = read_curve(tmp_path)
    assert curve.steps.tolist() == [10, 20] and curve.returns.tolist() == [1, 2] and curve.seconds.tolist() == [0, 4]


def test_a_fraction_of_the_budget_is_the_first_part_of_the_full_run(tmp_path: Path) -> None:
    settings = preset()
    settings["algo_kwargs"] |= {"learning_rate": {"start": 0.01, "end": 0.0}}  # over the whole run
    manifest = write_manifest(tmp_path, {"quick": settings})
    part, whole = job_of(manifest, fraction=0.5), job_of(manifest, runs="whole")
    train_and_score(part)
    assert part.stop == STEPS // 2 and is_done(part) and not is_done(job_of(manifest))
    train_and_score(whole)
    evaluations = [[line for line in lines_of(job) if line["kind"] == "eval"] for job in (part, whole)]
    assert evaluations[0] == evaluations[1][: len(evaluations[0])] and len(evaluations[0]) == 4

    options = ["--seeds", 1, "--output-dir", tmp_path / "runs", "--json"]
    (line,) = call("zoo", "table", manifest, "--budget-fraction", 0.5, *options).json
    assert line["verdict"] == "at 50% of the budget" and line["env_steps"] == STEPS // 2
    assert line["median"] == evaluations[0][-1]["eval_mean_return"]
    written = call("zoo", "table", manifest, "--budget-fraction", 0.5, "--write", tmp_path / "out", *options)
    picture = tmp_path / "out" / "first-0.5" / "zoo-test-env-vote-v0.png"
    assert written.code == 0 and picture.is_file(), "a part has a curve too"
    (line,) = call("zoo", "table", manifest, *options).json
    assert line["verdict"] == f"0 of 1 seeds, 1 under way at {STEPS // 2:,} of {STEPS:,} steps"
    # The same run continues to its end, as if it had not been stopped.
    train_and_score(job_of(manifest))
    assert lines_of(job_of(manifest)) == lines_of(whole)


@pytest.mark.parametrize("fraction", [0.3, 0.51])
def test_a_fraction_shows_the_score_of_the_step_at_which_it_stopped(fraction: float, tmp_path: Path) -> None:
    """A run stops at the end of a rollout, and so does the evaluation that is its score: a rollout later at most."""
    manifest = write_manifest(tmp_path, {"quick": preset(eval_every=128)})
    job = job_of(manifest, fraction=fraction)
    train_and_score(job)
    last = [line for line in lines_of(job) if line["kind"] == "eval"][-1]
    assert job.stop < last["env_steps"] < job.stop + 128
    options = ["--seeds", 1, "--output-dir", tmp_path / "runs", "--json"]
    (line,) = call("zoo", "table", manifest, "--budget-fraction", fraction, *options).json
    assert (line["env_steps"], line["median"]) == (last["env_steps"], last["eval_mean_return"])


def test_a_failed_row_does_not_affect_the_others(tmp_path: Path) -> None:
    """An env that cannot be made, one that kills its process, and between them one that is sound."""
    presets = {
        "missing": preset(env_id="NoSuchEnv-v7"),
        "deadly": preset(env_id="zoo_test_env:Deadly-v0"),
        "quick": preset(),
    }
    manifest = write_manifest(tmp_path, presets)
    options = ["--seeds", 1, "--output-dir", tmp_path / "runs", "--json"]
    outcome = call("zoo", "run", manifest, "--jobs", 1, *options)
    assert outcome.code == 1, outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: missing-seed0 failed: ") and "and 1 more" in outcome.err
    verdicts = {line["name"]: line["verdict"] for line in outcome.json}
    assert verdicts["quick"].startswith("pass")
    assert "seed 0 failed" in verdicts["missing"] and "NoSuchEnv" in verdicts["missing"]
    assert verdicts["deadly"] == "0 of 1 seeds; seed 0 failed: its process exited with code 13"
    # It is remembered, and forgotten once the row works.
    assert call("zoo", "table", manifest, *options).json == outcome.json
    (tmp_path / "missing.yaml").write_text(json.dumps(preset()))
    train_and_score(job_of(manifest))
    assert stored_failure(job_of(manifest)) is None and stored_score(job_of(manifest)) is not None


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_an_output_folder_that_cannot_be_created_is_an_error_in_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("user data")
    manifest = write_manifest(tmp_path, {"quick": preset()})
    outcome = call("zoo", "run", manifest, "--seeds", 1, "--output-dir", tmp_path / place)
    assert outcome.code == 2 and outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith(f"error: --output-dir {tmp_path / place}: cannot create runs and zoo.log there (")
    assert (tmp_path / "file").read_text() == "user data"


def test_a_failure_is_shown_without_the_output_folder(tmp_path: Path) -> None:
    job = job_of(write_manifest(tmp_path, {"quick": preset()}))
    note_failure(job, f"{job.run_dir}/checkpoints/step-000000000100: damaged")
    assert stored_failure(job) == f"{job.run_name}/checkpoints/step-000000000100: damaged"


class FakeProcess:
    """Still counts as alive, as a process does that dies a moment after it was looked at."""

    exitcode = -9

    def is_alive(self) -> bool:
        return True

    def join(self, timeout: float | None = None) -> None: ...
    def terminate(self) -> None: ...


def fake_worker(*, dead: bool) -> Any:
    ours, theirs = Pipe()

    def serve() -> None:
        with theirs, contextlib.suppress(EOFError):
            while True:
                theirs.recv()
                theirs.send(("done", None, None))

    if dead:
        theirs.close()
    else:
        threading.Thread(target=serve, daemon=True).start()
    return launcher.Worker(FakeProcess(), ours)  # type: ignore[arg-type]


@pytest.mark.parametrize(("alive_from", "failed"), [(1, 0), (99, 2)])
def test_a_worker_that_dies_before_it_gets_a_job_is_replaced_or_fails_only_that_job(
    alive_from: int, failed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, number = write_manifest(tmp_path, {"quick": preset()}), itertools.count()
    jobs = [job_of(manifest, seed) for seed in (0, 1)]
    monkeypatch.setattr(launcher, "_start_worker", lambda log: fake_worker(dead=next(number) < alive_from))
    with JobsDisplay(jobs, 0, enabled=False) as display:
        outcome = launcher.launch(jobs, 1, display)
    assert len(outcome.failures) == failed and display.done == 2 - failed and not outcome.stopped
    assert all(why == "its process exited with code -9" for why in outcome.failures.values())


def test_a_worker_that_died_as_it_is_asked_to_stop_fails_its_job_and_not_the_benchmark(tmp_path: Path) -> None:
    job, worker = job_of(write_manifest(tmp_path, {"quick": preset()})), fake_worker(dead=True)
    outcome = launcher.Outcome()
    with JobsDisplay([job], 0, enabled=False) as display, worker.pipe:
        display.begin(job)
        worker.job = job
        launcher._ask_to_stop([worker], display, outcome)
    assert outcome.failures == {job.run_name: "its process exited with code -9"} and worker.job is None


@pytest.mark.parametrize(("number", "seeds"), [(signal.SIGKILL, 2), (signal.SIGTERM, 1)])
def test_killed_at_any_moment_and_started_again_it_gives_the_same_table(
    number: int, seeds: int, tmp_path: Path
) -> None:
    """SIGKILL hits the parent only: its worker notices, lets go of the run, and the next benchmark takes it over."""
    # Seconds of training are left when the first checkpoint is seen, on a fast and idle machine too.
    slow = preset(total_timesteps=32_768, checkpoint_every=2_048, eval_every=8_192)
    manifest = write_manifest(tmp_path, {"slow": slow})
    options = ["--seeds", seeds, "--jobs", 1, "--output-dir", tmp_path / "runs"]
    process = start_process("zoo", "run", manifest, *options, cwd=tmp_path)

    def training_goes_on() -> bool:
        newest = list_checkpoints(tmp_path / "runs" / "slow-seed0", "resume")
        return bool(newest) and not newest[0].name.endswith("0" * 12)

    wait_for(training_goes_on, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    if number == signal.SIGTERM:
        assert process.returncode == 75 and "run the same command to continue" in err, err
    assert stored_score(job_of(manifest)) is None, "it was stopped before its end"

    outcome = call("zoo", "run", manifest, *options, "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    for seed in range(seeds):
        train_and_score(job_of(manifest, seed, runs="whole"))
        assert lines_of(job_of(manifest, seed)) == lines_of(job_of(manifest, seed, runs="whole"))
    whole = call("zoo", "table", manifest, "--seeds", seeds, "--output-dir", tmp_path / "whole", "--json")
    assert without_clock(outcome.json) == without_clock(whole.json)
    assert outcome.json[0]["verdict"].startswith("pass")


def test_display_tells_what_runs_how_far_and_how_long(tmp_path: Path) -> None:
    import io

    from rich.console import Console

    manifest = write_manifest(tmp_path, {"quick": preset()}, [row("quick.yaml"), row("quick.yaml", name="again")])
    jobs = [Job(entry, seed, str(tmp_path)) for entry in load_manifest(manifest).entries for seed in (0, 1)]
    stream = io.StringIO()
    with JobsDisplay(jobs, 3, stream=stream) as display:
        assert display.remaining() is None, "nothing is known before anything ran"
        display.begin(jobs[0])
        display.progress(jobs[0], 128)
        display.running[jobs[0].run_name] = (jobs[0], display.running[jobs[0].run_name][1] - 60.0, 128)
        display.progress(jobs[0], 128 + STEPS // 2)
        left = display.remaining()
        # Half a run took a minute: less than one more for the rest, and two minutes for each of the three that wait.
        assert left is not None and 380 < left < 420
        console = Console(width=140, file=io.StringIO(), record=True)
        console.print(display.render())
        text = console.export_text()
        assert "quick seed 0" in text and "1,152 of 2,048" in text and "3 of 4 done, 1 running, 3 waiting" in text
        display.end(jobs[0], None)
        display.begin(jobs[1])
        display.end(jobs[1], "loss became NaN")
    assert "quick seed 0: started" in stream.getvalue() and "quick seed 1: loss became NaN" in stream.getvalue()
