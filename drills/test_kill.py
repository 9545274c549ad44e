"""Item 1: kill -9 at random moments and at every step of a save; a resumed run equals one that was never killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kill_nursery
from figures import record_figure

KILLS = {"ppo": 25, "dqn": 25}


@pytest.mark.parametrize("algorithm", KILLS)
def test_a_killed_run_is_resumed_bit_for_bit(algorithm: str, tmp_path: Path) -> None:
    paths = os.pathsep.join(filter(None, [*sys.path]))
    finished = subprocess.run(
        [sys.executable, kill_nursery.__file__, algorithm, str(KILLS[algorithm]), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout.splitlines()[-1])
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
