"""The clock of a run: when it evaluates, when it is over, what it does not count; the one evaluation for all sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_training.zoo.clock import stopwatch
from rl_training.zoo.clock.foreign_load import ForeignLoad, busy_seconds, family_seconds
from rl_training.zoo.clock.stopwatch import Stopwatch, play_episodes
from waiting import DEADLINE_SECONDS, wait_until


class Time:
    """A clock that moves only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(stopwatch.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def watch_of(tmp_path: Path, **changes: Any) -> Stopwatch:
    rule = {"threshold": 10.0, "every": 100, "budget": 50.0, "minutes": None, "episodes": 5, "first_episodes": 2}
    return Stopwatch({**rule, "first_seed": 10_000, "started": 100.0, "events": str(tmp_path / "events"), **changes})


def events(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]


def test_a_task_is_solved_by_all_episodes_and_the_first_ones_are_a_sieve(tmp_path: Path, clock: Time) -> None:
    watch, played = watch_of(tmp_path), []
    scores = iter([[9.0, 9.0], [12.0, 12.0], [0.0, 0.0, 0.0], [12.0, 12.0], [9.0, 10.0, 11.0]])

    def play(seeds: Sequence[int]) -> list[float]:
        played.append(list(seeds))
        clock.now += 5.0
        return next(scores)

    watch.plays_with(play)
    for step in range(0, 330, 30):
        clock.now += 1.0
        if not watch.look(step):
            break
    assert played == [[10_000, 10_001]] + [[10_000, 10_001], [10_002, 10_003, 10_004]] * 2
    found = [line for line in events(tmp_path) if line["event"] == "evaluated"]
    assert [(line["env_steps"], line["seconds"], line["episodes"]) for line in found] == [
        (120, 5.0, 2), (210, 8.0, 5), (300, 11.0, 5),
    ]  # fmt: skip
    end = events(tmp_path)[-1]
    assert (end["event"], end["reason"], end["env_steps"], end["seconds"]) == ("end", "solved", 300, 11.0)
    assert end["wall"] == 11.0 + 5 * 5.0, "the time with all evaluations"
    assert watch.is_over and not watch.look(400)


def test_a_run_ends_with_its_budget_in_which_evaluations_do_not_count(tmp_path: Path, clock: Time) -> None:
    watch = watch_of(tmp_path)

    def play(seeds: Sequence[int]) -> list[float]:
        clock.now += 1000.0
        return [0.0] * len(seeds)

    watch.plays_with(play)
    assert watch.look(100)
    clock.now += 49.0
    assert watch.look(110)
    clock.now += 2.0
    assert not watch.look(120)
    assert [events(tmp_path)[-1][name] for name in ("reason", "env_steps", "seconds")] == ["budget", 120, 51.0]


def test_the_last_policy_of_a_run_without_steps_left_is_evaluated_once(tmp_path: Path, clock: Time) -> None:
    for step, evaluations in ((90, 1), (100, 1), (130, 2)):
        folder = tmp_path / str(step)
        folder.mkdir()
        watch = watch_of(folder)
        watch.plays_with(lambda seeds: [0.0] * len(seeds))
        watch.look(min(step, 100))
        watch.finish(step)
        watch.finish(step)
        told = [line["event"] for line in events(folder)]
        assert told.count("evaluated") == evaluations and told.count("end") == 1, step
        assert events(folder)[-1]["reason"] == "steps"


def test_scores_are_taken_at_the_first_round_after_each_time(tmp_path: Path, clock: Time) -> None:
    watch = watch_of(tmp_path, threshold=None, every=None, budget=None, minutes=[1, 2, 5], first_episodes=None)
    watch.plays_with(lambda seeds: [float(len(seeds))] * len(seeds))
    steps = 0
    while watch.look(steps):
        steps, clock.now = steps + 1, clock.now + 50.0
    found = [(line["env_steps"], line["seconds"]) for line in events(tmp_path) if line["event"] == "evaluated"]
    assert found == [(2, 100.0), (3, 150.0), (6, 300.0)]
    assert events(tmp_path)[-1]["reason"] == "minutes"


def test_an_evaluation_that_fails_ends_the_run_with_the_reason(tmp_path: Path, clock: Time) -> None:
    watch = watch_of(tmp_path)
    watch.plays_with(lambda seeds: [1 / 0])
    with pytest.raises(ZeroDivisionError):
        watch.look(100)
    assert events(tmp_path)[-1]["reason"] == "its evaluation failed with ZeroDivisionError: division by zero"
    assert not watch.look(200)


class Countdown:
    """An episode has as many steps as its seed has units; the reward is the action."""

    open_envs = 0

    def __init__(self) -> None:
        type(self).open_envs += 1

    def reset(self, seed: int) -> tuple[int, dict[str, Any]]:
        self.left = seed % 10 + 1
        return self.left, {}

    def step(self, action: float) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self.left, action, self.left == 0, False, {}

    def close(self) -> None:
        type(self).open_envs -= 1


def test_episodes_have_their_seed_and_raw_returns_however_many_are_played_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = [5, 3, 0, 9, 1, 4]
    expected = [float(sum(range(1, seed + 2))) for seed in seeds]
    for at_once in (1, 2, 25):
        monkeypatch.setattr(stopwatch, "ENVS_AT_ONCE", at_once)
        assert play_episodes(Countdown, lambda observations: [float(each) for each in observations], seeds) == expected
    assert Countdown.open_envs == 0


def test_the_clock_needs_the_standard_library_only(project_root: Path) -> None:
    """The environment of a peer may have other versions of everything else."""
    program = (
        "import sys, rl_training.zoo.clock.stopwatch; assert not {'numpy', 'pydantic', 'torch'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(project_root / "src")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=DEADLINE_SECONDS)


@pytest.mark.skipif(busy_seconds() is None, reason="the system does not tell")
def test_the_work_of_a_worker_and_its_children_is_not_foreign() -> None:
    """A child of a child is busy for a second of processor time; what else runs here meanwhile is unknown."""
    busy = "import time\nwhile time.process_time() < 1.0: pass\nprint('ready', flush=True)\ntime.sleep(600)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    load = ForeignLoad()
    before = busy_seconds()
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert family_seconds(process.pid) >= 0.98
        wait_until(lambda: busy_seconds() - before >= 0.98, DEADLINE_SECONDS)
        with_it, without_it = load.cores(), load.cores(process.pid)
        assert with_it is not None and without_it is not None
        assert with_it > without_it
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
