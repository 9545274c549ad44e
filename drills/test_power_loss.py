"""Item 2: the power fails after each file operation of a run, and the newest complete checkpoint still loads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from disk_layer import DiskLayer, Operation
from figures import record_figure
from lossy_disk import WAYS, LossyDisk
from rl_training.runtime.output import run_saver
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import (
    best_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from run_cases import CASES, Case, assert_same_run

RUNS = {"on-policy": CASES["a2c, one env"], "replay": CASES["dqn, one env, a buffer that overflows"]}
RESUMED = 10  # how many of the states after a power cut are also trained to the end


def record_run(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Operation | int]:
    """The file operations of a run, with the number of env steps after each save that returned."""
    trace: list[Operation | int] = []
    real = run_saver.RunSaver.save

    def save(self: Any, *arguments: Any, **options: Any) -> Any:
        path = real(self, *arguments, **options)
        trace.append(self.loop.env_steps)
        return path

    monkeypatch.setattr(run_saver.RunSaver, "save", save)
    folder.mkdir()
    with DiskLayer(folder, trace.append):
        train(case.config(folder, keep_checkpoints=2), show=False)
    monkeypatch.undo()
    return trace


@pytest.mark.parametrize("name", RUNS)
def test_every_moment_of_a_run_survives_a_power_cut(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = RUNS[name]
    folder = tmp_path / "whole"
    trace = record_run(case, folder, monkeypatch)
    saves = [entry for entry in trace if isinstance(entry, int)]
    assert saves == [0, 40, 80, 120, 160]
    disk, complete, looked_at, resumed = LossyDisk(folder), -1, 0, 0
    left = tmp_path / "left"
    moments = sum(isinstance(entry, Operation) for entry in trace)
    for number, entry in enumerate(trace):
        if isinstance(entry, int):
            complete = entry
        else:
            disk.apply(entry)
        for way in WAYS:
            disk.after_power_loss(way, left)
            run = left / "run"
            checkpoints = list_checkpoints(run, "resume")
            if complete >= 0 or (checkpoints and way == WAYS[2]):
                newest = latest_checkpoint(run)
                assert newest.env_steps >= complete, (number, way, entry)
                looked_at += 1
                if list_checkpoints(run, "agent"):
                    best_checkpoint(run)
            if complete >= 0 and number % (3 * len(trace) // RESUMED) == WAYS.index(way):
                again = resume(run, show=False)
                assert_same_run(again.run_dir, folder / "run")
                resumed += 1
            shutil.rmtree(left)
    assert resumed >= 3
    record_figure(2, f"{name}: file operations after which power is lost", moments, ">= 100")
    record_figure(2, f"{name}: states of the disk that were loaded (three for each moment)", looked_at, ">= 300")
    record_figure(2, f"{name}: states without the newest complete checkpoint", 0, "= 0")
    record_figure(2, f"{name}: of them, trained on to the same curve", resumed, ">= 3")


def test_an_export_that_replaces_another_survives_a_power_cut(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()

    def export(steps: int) -> None:
        state = {"weights": [float(steps)] * 5}
        save_checkpoint(
            folder / "agent", algorithm="ppo", config={}, state=state, env_steps=steps, number=0, replace=True
        )

    trace: list[Operation] = []
    with DiskLayer(folder, trace.append):
        export(1)
        first = len(trace)
        export(2)
    disk, looked_at = LossyDisk(folder), 0
    for number, operation in enumerate(trace):
        disk.apply(operation)
        if number < first - 1:
            continue
        for way in WAYS:
            left = tmp_path / "left"
            disk.after_power_loss(way, left)
            assert _loads(left / "agent"), (number, way, operation)
            looked_at += 1
            shutil.rmtree(left)
    record_figure(2, "states of an agent's export that is replaced, with neither the old nor the new one", 0, "= 0")
    assert looked_at > 30


def _loads(path: Path) -> bool:
    try:
        return load_checkpoint(path).env_steps in (1, 2)
    except Exception:
        return False
