"""Run files that are damaged, moved or deleted while a run trains, and environments that change the directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from rl_training.errors import CheckpointError
from rl_training.runtime import workflows
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints, verify_checkpoint
from rl_training.storage.run_directory import list_runs, open_run_directory, run_status
from run_cases import CASES, assert_same_run, stop_at

A2C = CASES["a2c, one env"]
DAMAGE = {"nothing": None, "no JSON": b"{", "a list": b"[]", "empty": b"", "wrong types": b'{"status": 3, "seed": []}'}


def at(step: int, action: Any) -> Any:
    """A callback that acts once, at this step."""

    def callback(progress: Any) -> None:
        if progress.env_steps == step:
            action()

    return callback


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def damage(run: Path, content: bytes | None) -> None:
    (run / "run.json").unlink()
    if content is not None:
        (run / "run.json").write_bytes(content)


@pytest.mark.parametrize("name", DAMAGE)
def test_a_run_file_that_is_damaged_during_training_is_rebuilt(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(A2C.config(tmp_path), callback=at(50, lambda: damage(run, DAMAGE[name])), show=False)
    assert not result.interrupted
    info = open_run_directory(run).read_info()
    assert (info["status"], info["algorithm"], info["env"]) == ("finished", "a2c", "CartPole-v1")
    assert (info["seed"], info["total_timesteps"], info["env_steps"], info["number"]) == (3, 160, 160, 1)
    assert info["wall_seconds"] > 0 and info["created"]


@pytest.mark.parametrize("name", DAMAGE)
def test_resume_rebuilds_a_damaged_run_file(name: str, tmp_path: Path) -> None:
    run = train(A2C.config(tmp_path), callback=stop_at(60), show=False).run_dir
    damage(run, DAMAGE[name])
    resume(run, show=False)
    info = open_run_directory(run).read_info()
    assert (info["status"], info["algorithm"], info["seed"], info["env_steps"]) == ("finished", "a2c", 3, 160)
    assert list_runs(tmp_path)[0].total_timesteps == 160


@pytest.mark.parametrize("value", ["x", None, [], {}, True, -1, 1e300, "1"])
def test_resume_ignores_wall_seconds_of_another_type(value: Any, tmp_path: Path) -> None:
    run = train(A2C.config(tmp_path), callback=stop_at(60), show=False).run_dir
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"wall_seconds": value}))
    assert 0 < resume(run, show=False).wall_seconds < 600


def test_a_run_directory_that_is_renamed_ends_the_run_and_can_be_resumed_at_its_new_place(tmp_path: Path) -> None:
    whole = train(A2C.config(tmp_path / "whole"), show=False).run_dir
    runs = tmp_path / "runs"
    with pytest.raises(CheckpointError, match="moved or deleted") as caught:
        train(A2C.config(runs), callback=at(50, lambda: (runs / "run").rename(runs / "renamed")), show=False)
    assert caught.value.exit_code == 5 and "\n" not in str(caught.value) and "is lost" in str(caught.value)
    assert [path.name for path in runs.iterdir()] == ["renamed"], "half a run is not created at the old place"
    assert run_status(runs / "renamed") == "interrupted"
    resumed = resume(runs / "renamed", show=False)
    assert_same_run(resumed.run_dir, whole)


def test_a_run_directory_that_is_deleted_ends_the_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def delete(progress: Any) -> None:
        seen.append(progress.env_steps)
        if progress.env_steps == 50:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(CheckpointError, match="moved or deleted"):
        train(A2C.config(tmp_path, log_every=20), callback=delete, show=False)
    assert list(tmp_path.iterdir()) == []
    assert seen[-1] <= 70, "it ends at the next metric line, not at the end of the run"


def test_a_run_never_writes_into_another_run_that_has_taken_its_name(tmp_path: Path) -> None:
    other: dict[str, bytes | None] = {}

    def swap() -> None:
        (tmp_path / "run").rename(tmp_path / "renamed")
        train(A2C.config(tmp_path, seed=4), callback=stop_at(20), show=False)
        other.update(tree(tmp_path / "run"))

    with pytest.raises(CheckpointError, match="moved or deleted"):
        train(A2C.config(tmp_path), callback=at(50, swap), show=False)
    assert other and tree(tmp_path / "run") == other


def test_a_removed_lock_is_taken_again_unless_another_process_has_it(tmp_path: Path) -> None:
    run, statuses = tmp_path / "run", []

    def look(progress: Any) -> None:
        if progress.env_steps == 50:
            (run / "lock").unlink()
        if progress.env_steps == 100:
            statuses.append(run_status(run))

    train(A2C.config(tmp_path), callback=look, show=False)
    assert statuses == ["running"]

    second = open_run_directory(run).lock()

    def take_over() -> None:
        (run / "lock").unlink()
        second.__enter__()

    with pytest.raises(CheckpointError, match="in use"):
        resume(run, total_timesteps=320, callback=at(200, take_over), show=False)
    second.__exit__(None, None, None)


class Wanderer(gym.Wrapper[Any, Any, Any, Any]):
    """Changes the working directory in its constructor, or at every reset and step."""

    def __init__(self, folder: Path, moment: str) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.folder, self.moment = folder, moment
        self._go("constructor")

    def _go(self, moment: str) -> None:
        if moment == self.moment:
            os.chdir(self.folder)

    def reset(self, **options: Any) -> Any:
        self._go("reset")
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self._go("step")
        return super().step(action)


@pytest.mark.parametrize("moment", ["constructor", "reset", "step"])
def test_an_env_that_changes_the_working_directory_does_not_move_the_run(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)

    def make() -> gym.Env[Any, Any]:
        return Wanderer(elsewhere, moment)

    config = A2C.config(Path("runs"), env_id="callable:make")
    half = train(config, env=make, callback=stop_at(60), show=False)
    assert half.run_dir == home / "runs" / "run" and half.checkpoint.is_dir()
    monkeypatch.chdir(home)
    result = resume("runs/run", env=make, show=False)
    assert result.run_dir == home / "runs" / "run" and result.checkpoint.is_dir()
    assert list(elsewhere.iterdir()) == []
    assert latest_checkpoint(home / "runs" / "run").env_steps == 160


def test_a_relative_path_is_shown_as_the_user_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = train(A2C.config(Path("runs")), callback=stop_at(60), show=False)
    assert str(result.run_dir) == "runs/run" and result.checkpoint.parts[:2] == ("runs", "run")
    assert str(resume("runs/run", show=False).run_dir) == "runs/run"
    monkeypatch.chdir(tmp_path / "runs" / "run")
    assert resume(result.checkpoint.name, output_dir="checkpoints", show=False).env_steps == 160


def test_a_resume_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    run = train(A2C.config(tmp_path), callback=stop_at(60), show=False).run_dir
    with open_run_directory(run).lock():
        before = tree(run)
        with pytest.raises(CheckpointError, match="in use"):
            resume(run, total_timesteps=320, show=False)
        assert tree(run) == before


def test_resume_continues_from_what_was_saved_before_it_got_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(A2C.config(tmp_path), callback=stop_at(60), show=False).run_dir
    real = workflows.open_run_directory

    def another_process_first(path: Path) -> Any:
        monkeypatch.setattr(workflows, "open_run_directory", real)
        resume(run, callback=stop_at(100), show=False)
        return real(path)

    monkeypatch.setattr(workflows, "open_run_directory", another_process_first)
    steps: list[int] = []
    resume(run, callback=lambda progress: steps.append(progress.env_steps), show=False)
    assert steps[0] == 105
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith("abandoned")] == []


def test_stops_within_one_checkpoint_interval_keep_the_exact_checkpoint(tmp_path: Path) -> None:
    whole = train(A2C.config(tmp_path / "whole", keep_checkpoints=2), show=False).run_dir
    run = train(A2C.config(tmp_path, keep_checkpoints=2), callback=stop_at(50), show=False).run_dir
    for step in (60, 70):
        resume(run, callback=stop_at(step), show=False)
    names = [path.name[-3:] for path in list_checkpoints(run, "resume")]
    assert names == ["070", "060", "040"]
    resume(run / "checkpoints" / "step-000000000040", show=False)
    assert_same_run(run, whole)
    assert all(verify_checkpoint(path) == [] for path in list_checkpoints(run))
