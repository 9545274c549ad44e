"""Runs never share a directory, and a directory never has two writers."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage import run_directory, run_lock
from rl_training.storage.durable_files import free_name
from rl_training.storage.run_directory import (
    RunDirectory,
    atomic_write_text,
    create_run_directory,
    list_runs,
    open_run_directory,
)
from waiting import DEADLINE_SECONDS

SOURCE = Path(run_directory.__file__).parents[2]

HOLD_THE_LOCK = """
import os, sys, time
from rl_training.storage.run_directory import open_run_directory
with open_run_directory(sys.argv[1]).lock():
    child = os.fork() if sys.argv[2] == "with worker" else None
    if child == 0:
        os.close(1)
        time.sleep(3600)
        os._exit(0)
    print(child or 0, flush=True)
    sys.stdin.read()
"""


def start_holder(run: RunDirectory, mode: str = "alone") -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(run.path), mode],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def stop_holder(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def create_twenty(output_dir: str, barrier: Barrier, results: Any) -> None:
    for number in range(20):
        barrier.wait(timeout=DEADLINE_SECONDS)
        results.put((number, str(create_run_directory(output_dir, f"run{number}").path)))


def test_two_simultaneous_starts_never_share_a_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    workers = [context.Process(target=create_twenty, args=(str(tmp_path / "runs"), barrier, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    created = [results.get(timeout=DEADLINE_SECONDS) for _ in range(40)]
    for worker in workers:
        worker.join(timeout=DEADLINE_SECONDS)
        assert worker.exitcode == 0
    assert len({path for _, path in created}) == 40
    for number in range(20):
        names = sorted(Path(path).name for which, path in created if which == number)
        assert names == [f"run{number}", f"run{number}-2"]


def test_a_taken_name_gets_the_next_number_and_nothing_is_overwritten(tmp_path: Path) -> None:
    runs = [create_run_directory(tmp_path / "a" / "b", "ppo_CartPole-v1", seed=seed) for seed in range(3)]
    assert [run.name for run in runs] == ["ppo_CartPole-v1", "ppo_CartPole-v1-2", "ppo_CartPole-v1-3"]
    assert [run.read_info()["seed"] for run in runs] == [0, 1, 2]
    assert runs[0].path.stat().st_mode & 0o777 == 0o755 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "x" * 65, "-x", "a\nb"])
def test_an_invalid_name_is_a_config_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="run_name") as caught:
        create_run_directory(tmp_path, name)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_output_dir_that_cannot_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="output_dir"):
        create_run_directory(tmp_path / "file" / "runs", "x")


def test_the_error_of_a_second_process_names_the_first(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "busy")
    process, _ = start_holder(run)
    try:
        with pytest.raises(CheckpointError, match=f"busy is in use by process {process.pid}"), run.lock():
            pytest.fail("two processes hold the same run")
    finally:
        stop_holder(process)


def test_the_lock_is_exclusive_inside_one_process_and_can_be_taken_again(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run")
    with run.lock():
        assert (run.path / "lock").read_text() == str(os.getpid())
        for _ in range(2):  # the second attempt is refused too: the first one has not released the lock
            with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"), run.lock():
                pytest.fail("the lock was acquired twice")
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    with run.lock():
        pass


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run")
    process, _ = start_holder(run)
    stop_holder(process)
    with run.lock():
        assert (run.path / "lock").read_text() == str(os.getpid())


def test_a_forked_worker_that_outlives_a_killed_run_does_not_keep_its_lock(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run")
    process, worker = start_holder(run, "with worker")
    try:
        stop_holder(process)
        os.kill(worker, 0)
        with run.lock():
            pass
    finally:
        os.kill(worker, signal.SIGKILL)


def test_listing_runs_at_the_moment_of_locking_does_not_make_the_lock_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run_directory(tmp_path, "run")
    answers = iter([False, False, True])
    monkeypatch.setattr(run_lock, "_try_lock", lambda descriptor: next(answers))
    with run.lock():
        assert next(answers, None) is None


def test_runs_are_listed_newest_first_with_their_details(tmp_path: Path) -> None:
    first = create_run_directory(tmp_path, "first", algorithm="ppo", env="CartPole-v1", seed=4, total_timesteps=500)
    time.sleep(0.002)
    create_run_directory(tmp_path, "second", algorithm="sac", env="Pendulum-v1", seed=0)
    first.update(status="finished", score=1.5)
    (tmp_path / "unrelated").mkdir()
    (tmp_path / "file").write_text("")
    second_listed, first_listed = list_runs(tmp_path)
    assert (first_listed.name, first_listed.status, first_listed.algorithm) == ("first", "finished", "ppo")
    assert (first_listed.env, first_listed.seed, first_listed.total_timesteps) == ("CartPole-v1", 4, 500)
    assert second_listed.algorithm == "sac" and second_listed.total_timesteps is None
    assert first.read_info()["score"] == 1.5
    assert list_runs(tmp_path / "nowhere") == []


def test_a_run_is_running_only_while_its_process_lives(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run")
    process, _ = start_holder(run)
    assert list_runs(tmp_path)[0].status == "running"
    stop_holder(process)
    assert list_runs(tmp_path)[0].status == "interrupted"
    run.update(status="failed")
    assert list_runs(tmp_path)[0].status == "failed"
    with pytest.raises(ValueError, match="status"):
        run.update(status="splendid")
    assert run.read_info()["status"] == "failed"


def test_a_damaged_run_file_does_not_break_the_list(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", seed=1)
    for content in (b"", b"[]", b'{"status": 3, "seed": "x", "created": 7}', b"\xff\xfe"):
        (run.path / "run.json").write_bytes(content)
        (summary,) = list_runs(tmp_path)
        assert (summary.name, summary.status, summary.seed) == ("run", "unknown", None)


def test_open_refuses_other_directories(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run")
    assert open_run_directory(str(run.path)) == run
    with pytest.raises(CheckpointError, match="not a run directory"):
        open_run_directory(tmp_path)
    with pytest.raises(CheckpointError, match="no such run directory"):
        open_run_directory(tmp_path / "nowhere")


def test_atomic_write_replaces_the_whole_text_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    atomic_write_text(path, json.dumps({"a": 1}))
    atomic_write_text(str(path), "second ü")
    assert path.read_text(encoding="utf-8") == "second ü"

    def fail(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        atomic_write_text(path, "third")
    assert path.read_text(encoding="utf-8") == "second ü"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_taken_name_gets_the_first_free_number(tmp_path: Path) -> None:
    name = tmp_path / "ppo.v1"
    assert free_name(name) == name
    name.mkdir()
    (tmp_path / "ppo.v1-2").symlink_to(tmp_path / "nowhere")  # a dangling link takes a name too
    assert free_name(name) == tmp_path / "ppo.v1-3"
    assert free_name(name, first=1) == tmp_path / "ppo.v1-1"
    (tmp_path / "ppo.v1.json").write_text("")
    assert free_name(name, suffix=".json") == tmp_path / "ppo.v1-2.json"
