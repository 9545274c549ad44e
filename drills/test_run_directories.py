"""Item 9: simultaneous starts never share a run directory, and the lock of a dead process does not hold."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from figures import record_figure
from rl_training.storage.run_directory import create_run_directory, list_runs, open_run_directory
from waiting import DEADLINE_SECONDS

PAIRS = 50
STALE = 20


def start_and_lock(output_dir: str, barrier: Barrier, results: Any) -> None:
    """What a run does before it trains: claim a directory, here of the same name as the other process, and lock it."""
    for number in range(PAIRS):
        barrier.wait(timeout=DEADLINE_SECONDS)
        run = create_run_directory(output_dir, f"run{number}", seed=os.getpid())
        with run.lock():
            results.put((number, run.name, run.read_info()["seed"] == os.getpid()))


def test_fifty_simultaneous_pairs_of_starts_never_collide(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    starters = [context.Process(target=start_and_lock, args=(str(tmp_path), barrier, results)) for _ in range(2)]
    for starter in starters:
        starter.start()
    claims = [results.get(timeout=DEADLINE_SECONDS) for _ in range(2 * PAIRS)]
    for starter in starters:
        starter.join(timeout=DEADLINE_SECONDS)
        assert starter.exitcode == 0
    expected = {(number, name) for number in range(PAIRS) for name in (f"run{number}", f"run{number}-2")}
    collisions = 2 * PAIRS - len({name for _, name, _ in claims})
    foreign = sum(not own for _, _, own in claims)
    assert {(number, name) for number, name, _ in claims} == expected
    record_figure(9, "simultaneous pairs of starts", PAIRS, ">= 50")
    record_figure(9, "collisions, and runs written by the other process", collisions + foreign, "= 0")


def test_locks_of_killed_processes_heal(tmp_path: Path) -> None:
    stuck = 0
    for number in range(STALE):
        run = create_run_directory(tmp_path, f"run{number}")
        reading_end, writing_end = os.pipe()
        child = os.fork()
        if child == 0:
            with run.lock():
                os.write(writing_end, b"1")
                signal.pause()
        os.read(reading_end, 1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading_end)
        os.close(writing_end)
        try:
            with open_run_directory(run.path).lock():
                pass
        except Exception:
            stuck += 1
    assert {summary.status for summary in list_runs(tmp_path)} == {"interrupted"}
    record_figure(9, f"runs still locked after kill -9, of {STALE}", stuck, "= 0")
