"""Item 1: kill -9 at random moments, in every part of a run and at every step of a save; nothing changes the curve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kill_nursery
import spread_kills
from figures import record_figure

KILLS = {"ppo": 25, "dqn": 25}
SPREAD_KILLS = 20  # for each of two algorithms


def report_of(program: ModuleType, name: str, kills: int, folder: Path) -> dict[str, Any]:
    """Run a program that kills runs; it fails if a resumed run differs from the uninterrupted one."""
    paths = os.pathsep.join(filter(None, [*sys.path]))
    finished = subprocess.run(
        [sys.executable, str(program.__file__), name, str(kills), str(folder)],
        env={**os.environ, "PYTHONPATH": paths, spread_kills.MARK_VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert finished.returncode == 0, finished.stderr
    return dict(json.loads(finished.stdout.splitlines()[-1]))


@pytest.mark.parametrize("algorithm", KILLS)
def test_a_killed_run_is_resumed_bit_for_bit(algorithm: str, tmp_path: Path) -> None:
    report = report_of(kill_nursery, algorithm, KILLS[algorithm], tmp_path)
    points = set(kill_nursery.crash_points())
    if algorithm == "ppo":
        points -= {"segment-written", "segment-renamed"}  # PPO has no replay data
    assert set(report["crash_points"]) == points
    assert report["compared"] > len(points), "a run was not compared with the uninterrupted one"
    record_figure(1, f"{algorithm}: kills at random moments", report["kills"], ">= 25")
    record_figure(1, f"{algorithm}: crash points of the saver, all that it passes", len(points), ">= 9")
    record_figure(1, f"{algorithm}: resumed runs that differ from the uninterrupted one", 0, "= 0")
    record_figure(
        1, f"{algorithm}: most work lost, in checkpoint intervals", report["most_lost"] / kill_nursery.INTERVAL, "<= 1"
    )


@pytest.mark.parametrize("name", spread_kills.SETTINGS)
def test_kills_in_every_part_of_a_run_change_nothing(name: str, tmp_path: Path) -> None:
    report = report_of(spread_kills, name, SPREAD_KILLS, tmp_path)
    assert report["compared"] == spread_kills.CHAINS, "a run was not compared with the uninterrupted one"
    assert report["most_processes"] == (5 if "processes" in name else 1), "the run, keeper, nursery, two envs"
    parts = len(set(report["parts"]))
    record_figure(1, f"{name}: equal parts of the run, each with a kill", parts, f"= {SPREAD_KILLS}")
    record_figure(1, f"{name}: resumed runs (with the replay and the best agent) that differ", 0, "= 0")
    lost = report["most_lost"] / kill_nursery.INTERVAL
    record_figure(1, f"{name}: most work lost, in checkpoint intervals", lost, "<= 1")
    seconds = f"{spread_kills.PATIENCE_SECONDS:.0f} s"
    record_figure(1, f"{name}: processes left {seconds} after each kill, in all", report["processes_left"], "= 0")
