"""run.json of any content, directories that cannot be read, and which run is the latest."""

from __future__ import annotations

import builtins
import io
import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpoint_helpers import save
from cli_helpers import call, tiny_config, write_config
from rl_training.errors import CheckpointError
from rl_training.experiment.manager import ExperimentManager
from rl_training.storage import run_directory, run_lock
from rl_training.storage.checkpoints import resolve_checkpoint
from rl_training.storage.run_directory import create_run_directory, list_runs, open_run_directory, run_status
from rl_training.storage.run_file import MOST_RUNS

FIELDS = ["status", "created", "number", "algorithm", "env", "seed", "total_timesteps", "env_steps", "wall_seconds"]
HOSTILE: dict[str, str] = {
    "null": "null",
    "true": "true",
    "zero": "0",
    "negative": "-5",
    "a fraction": "1.5",
    "huge": "1" + "0" * 400,
    "a huge float": "1e308",
    "too long to parse": "1" * 5000,
    "empty text": '""',
    "text": '"x"',
    "a number as text": '"7"',
    "an escape sequence": '"\\u001b[2J\\u202e"',
    "half a character": '"\\ud800"',
    "a list": "[1, 2]",
    "an object": '{"a": {}}',
    "the first year": '"0001-01-01T00:00:00+00:00"',
    "the last year": '"9999-12-31T23:59:59-23:59"',
    "a time without a zone": '"2026-01-01T00:00:00"',
}


def write_field(run: Path, field: str, text: str) -> None:
    """Replace one field by JSON text, which may be something that json.dumps would not write."""
    info = json.loads((run / "run.json").read_text())
    info[field] = "PLACE"
    (run / "run.json").write_text(json.dumps(info).replace('"PLACE"', text))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_any_content_breaks_nothing(field: str, name: str, tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", algorithm="ppo", env="CartPole-v1", seed=1, total_timesteps=10)
    run.update(env_steps=5, wall_seconds=2.0)
    write_field(run.path, field, HOSTILE[name])
    (summary,) = list_runs(tmp_path)
    assert summary.status in ("interrupted", "unknown", "finished")
    info = run.read_info()
    kinds = dict.fromkeys(FIELDS, int) | {"status": str, "created": str, "algorithm": str, "env": str}
    kinds["wall_seconds"] = float
    for known, kind in kinds.items():
        assert known not in info or type(info[known]) is kind, (known, info[known])
    listed = call("list", "runs", "--output-dir", tmp_path)
    assert listed.code == 0 and "run" in listed.out and "\x1b[2J" not in listed.out
    assert call("list", "runs", "--output-dir", tmp_path, "--json").code == 0
    assert ExperimentManager(tmp_path).open("latest").env_steps in (0, 5, 7)
    run.update(status="failed")
    assert run_status(run.path) == "failed"
    assert create_run_directory(tmp_path, "next").read_info()["number"] >= 1


def test_valid_fields_are_kept_as_they_are(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", algorithm="ppo", env="CartPole-v1", seed=2**64, total_timesteps=10)
    run.update(env_steps=5, wall_seconds=2, notes=["mine"], nothing=None)
    info = open_run_directory(run.path).read_info()
    assert (info["seed"], info["env_steps"], info["wall_seconds"]) == (2**64, 5, 2.0)
    assert (info["notes"], info["nothing"], info["number"]) == (["mine"], None, 1)


def test_latest_is_the_run_that_was_started_last_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {name: create_run_directory(tmp_path, name).path for name in ("first", "second")}

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - timedelta(days=400)

    monkeypatch.setattr(run_directory, "datetime", Clock)
    runs["third"] = create_run_directory(tmp_path, "third").path
    assert [run.name for run in list_runs(tmp_path)] == ["third", "second", "first"]
    for path in runs.values():
        save(path, 10)
    assert resolve_checkpoint("latest", tmp_path).parent.parent == runs["third"]
    assert ExperimentManager(tmp_path).open("latest").name == "third"


def test_runs_without_a_number_are_older_and_go_by_their_time(tmp_path: Path) -> None:
    for name, created in (("a", "2026-03-01T00:00:00+00:00"), ("b", "2026-03-01T09:00:00+12:00"), ("c", "soon")):
        run = create_run_directory(tmp_path, name).path
        (run / "run.json").write_text(json.dumps({"status": "finished", "created": created}))
    os.utime(tmp_path / "c", (1e9, 1e9))  # 2001
    create_run_directory(tmp_path, "new")
    assert [run.name for run in list_runs(tmp_path)] == ["new", "a", "b", "c"], "09:00 in Auckland is before 00:00 UTC"


@pytest.mark.parametrize("number", ["1" + "0" * 400, str(MOST_RUNS + 1), "-1", "true", '"9"', "1e9", str(MOST_RUNS)])
def test_a_forged_number_does_not_stay_the_latest(number: str, tmp_path: Path) -> None:
    forged = create_run_directory(tmp_path, "forged").path
    write_field(forged, "created", '"2020-01-01T00:00:00+00:00"')
    write_field(forged, "number", number)
    for name in ("one", "two"):
        create_run_directory(tmp_path, name)
    assert [run.name for run in list_runs(tmp_path)][-1] == "forged"


def test_a_directory_time_that_no_calendar_has_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run_directory(tmp_path, "run").path
    (run / "run.json").write_text("{}")
    real = os.stat

    def stat(path: Any, **options: Any) -> Any:
        result = real(path, **options)
        if str(path) != str(run):
            return result
        return os.stat_result([*result[:8], 10**17, result[9]])

    monkeypatch.setattr(os, "stat", stat)
    assert list_runs(tmp_path)[0].created.startswith("1971")


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a directory behave like one with mode 000, for the superuser too, who may read everything."""
    closed: list[str] = []

    def guard(module: Any, name: str, includes_itself: bool) -> None:
        real = getattr(module, name)

        def guarded(path: Any = ".", *rest: Any, **options: Any) -> Any:
            text = os.path.abspath(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else ""
            for folder in closed:
                if text.startswith(folder + os.sep) or (includes_itself and text == folder):
                    raise PermissionError(13, "Permission denied", text)
            return real(path, *rest, **options)

        monkeypatch.setattr(module, name, guarded)

    for module, name, includes_itself in (
        (os, "stat", False),
        (os, "lstat", False),
        (os, "open", True),
        (os, "listdir", True),
        (os, "scandir", True),
        (builtins, "open", True),
        (io, "open", True),
    ):
        guard(module, name, includes_itself)
    return lambda path: closed.append(str(path))


@pytest.mark.parametrize("part", ["", "checkpoints"], ids=["the run", "its checkpoints"])
def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    part: str, tmp_path: Path, unreadable: Callable[[Path], None]
) -> None:
    config = write_config(tmp_path / "tiny.yaml", tiny_config("ppo"))
    runs = tmp_path / "runs"
    for name in ("good", "locked"):
        assert call("train", config, "--output-dir", runs, "--set", f"run_name={name}", "--quiet").code == 0
    locked = runs / "locked" / part if part else runs / "locked"
    unreadable(locked)
    listed = call("list", "runs", "--output-dir", runs, "--json")
    assert listed.code == 0 and "good" in [row["name"] for row in listed.json]
    for target in ("latest", "good", runs / "good"):
        evaluated = call("eval", target, "--output-dir", runs, "--episodes", 1, "--json")
        assert evaluated.code == 0, evaluated.err
    assert call("train", config, "--output-dir", runs, "--quiet").code == 0
    for command in ("eval", "inspect", "resume"):
        for target in ("locked", runs / "locked", runs / "locked" / "checkpoints" / "step-000000000096"):
            refused = call(command, target, "--output-dir", runs)
            assert refused.code == 5, (command, target, refused)
            assert len(refused.err.splitlines()) == 1 and "Traceback" not in refused.err
    refused = call("eval", runs / "locked", "--output-dir", runs)
    assert "Permission denied" in refused.err


def test_an_output_dir_that_cannot_be_read_is_one_line(tmp_path: Path, unreadable: Callable[[Path], None]) -> None:
    unreadable(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    with pytest.raises(CheckpointError, match=r"cannot be read \(Permission denied\)"):
        list_runs(tmp_path / "runs")
    listed = call("list", "runs", "--output-dir", tmp_path / "runs")
    assert listed.code == 5 and len(listed.err.splitlines()) == 1


def test_texts_of_a_run_file_are_clean_before_anyone_sees_them(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", algorithm="ppo", env="CartPole-v1").path
    for field in ("algorithm", "env"):
        write_field(run, field, '"a\\u001b[2Jb"')
    assert {open_run_directory(run).read_info()[field] for field in ("algorithm", "env")} == {"a[2Jb"}


def test_a_released_lock_is_free_although_another_process_has_a_copy_of_its_descriptor(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run").path
    descriptor = run_lock.acquire(run)
    copy = os.dup(descriptor)  # as in a child that a C library has started
    try:
        run_lock.release(descriptor)
        assert not run_lock.is_locked(run)
    finally:
        os.close(copy)
