"""Sittings: turns, stopping and continuing, workers that die, hang, never solve or are missing, and busy machines."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, start_process, wait_for
from clock_helpers import board, checkout, own_side, side, task, write_board
from rl_training.errors import EXIT_RESUMABLE
from rl_training.zoo.clock import sitting, worker_process
from rl_training.zoo.clock.board import load_board
from rl_training.zoo.clock.clock_results import find_result
from rl_training.zoo.clock.sitting import all_turns
from rl_training.zoo.manifest import load_manifest
from waiting import DEADLINE_SECONDS
from zoo_helpers import install_env


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does nothing else, whatever it does."""
    monkeypatch.setattr(worker_process.ForeignLoad, "cores", lambda self, process=None: 0.01)


def clock(folder: Path, content: dict[str, Any], *options: object) -> Any:
    path = write_board(folder, content)
    return call("zoo", "clock", path, "--checkout", folder / "checkout", "--output-dir", folder / "runs", *options)


def sides(**named: dict[str, Any]) -> dict[str, Any]:
    return board(tasks={"count": task(sides=named)})


def result(folder: Path, name: str, seed: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs" / "tiny" / "count" / f"{name}-seed{seed}.json").read_text())
    return found


def test_every_side_has_its_turn_and_each_seed_begins_with_another_one(tmp_path: Path) -> None:
    content = sides(a=side(), b=side(), c=side())
    turns = all_turns(load_board(write_board(tmp_path, content)).tasks, [7, 8, 9, 10])
    assert [f"{turn.seed}{turn.side.name}" for turn in turns] == [
        *("7a", "7b", "7c"), *("8b", "8c", "8a"), *("9c", "9a", "9b"), *("10a", "10b", "10c"),
    ]  # fmt: skip


@pytest.mark.usefixtures("calm")
def test_a_run_that_never_solves_its_task_counts_as_infinitely_long(tmp_path: Path) -> None:
    checkout(tmp_path)
    lines = clock(tmp_path, sides(fast=side(best=1000), never=side(best=30)), "--json").json
    fast, never = lines
    assert fast["solved"] == 2 and fast["env_steps"] == 60, "the first multiple of 20 whose episodes reach 50"
    assert fast["median"] == pytest.approx(sum(fast["each"]) / 2) and all(0 < each < 60 for each in fast["each"])
    assert (never["solved"], never["each"], never["median"], never["seeds"]) == (0, [None, None], None, 2)
    stored = result(tmp_path, "never")
    assert (stored["end"], stored["env_steps"], stored["points"][-1][2]) == ("steps", 200, 30.0)
    table = clock(tmp_path, sides(fast=side(best=1000), never=side(best=30)), "--table").out
    assert "not solved in 0 s" in table or "not solved in" in table


@pytest.mark.usefixtures("calm")
def test_a_sitting_that_was_stopped_continues_and_repeats_nothing(tmp_path: Path) -> None:
    checkout(tmp_path)
    content = sides(a=side(best=1000), b=side(best=1000))
    plan = clock(tmp_path, content, "--dry-run")
    assert "count seed 1 b: at most 60 s" in plan.out and "4 runs left, 0 done; at most 0.1 h" in plan.out
    assert clock(tmp_path, content, "--side", "b", "--seeds", "1", "--quiet").err == ""
    before = result(tmp_path, "b")
    assert [each["side"] for each in clock(tmp_path, content, "--dry-run", "--json").json] == ["a", "b", "a"]
    outcome = clock(tmp_path, content)
    assert "count seed 0 a: 60.0 after 60 steps, solved in" in outcome.err and "(1 of 3)" in outcome.err
    assert result(tmp_path, "b") == before
    assert "Measured in 2 sittings" in outcome.out or before["sitting"] == result(tmp_path, "a")["sitting"]
    assert "0 runs left, 4 done" in clock(tmp_path, content, "--dry-run").out


@pytest.mark.usefixtures("calm")
def test_other_settings_of_a_side_or_a_longer_budget_outdate_results(tmp_path: Path) -> None:
    checkout(tmp_path)
    content = sides(slow=side(best=30, steps=10_000, round=0.01))
    assert clock(tmp_path, content, "--budget", "0.3", "--seeds", "1").code == 0
    assert result(tmp_path, "slow")["end"] == "budget"

    def left(content: dict[str, Any], *options: str) -> int:
        return len(clock(tmp_path, content, "--seeds", "1", "--dry-run", "--json", *options).json)

    assert left(content, "--budget", "0.2") == 0, "not solved in 0.3 s is not solved in 0.2 s"
    assert left(content) == 1
    assert left(sides(slow=side(best=31, steps=10_000, round=0.01)), "--budget", "0.2") == 1


@pytest.mark.usefixtures("calm")
def test_a_worker_that_dies_is_one_line_and_does_not_end_the_others(tmp_path: Path) -> None:
    checkout(tmp_path)
    content = sides(dead=side(best=1000, dies=True), good=side(best=1000))
    outcome = clock(tmp_path, content, "--seeds", "1")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == (
        "error: count seed 0 dead failed: its process exited with code 1 before its end: out of memory; all other runs "
        "are finished"
    )
    assert result(tmp_path, "good")["end"] == "solved" and "dead seed 0 failed: its process" in outcome.out
    assert not (tmp_path / "runs" / "tiny" / "count" / "dead-seed0.json").exists(), "it is tried again next time"


@pytest.mark.usefixtures("calm")
def test_a_worker_that_never_looks_at_the_clock_is_ended_and_has_not_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "GRACE_SECONDS", 0.2)
    checkout(tmp_path)
    clock(tmp_path, sides(stuck=side(best=30, round=600.0)), "--seeds", "1", "--budget", "0.2")
    assert (result(tmp_path, "stuck")["end"], result(tmp_path, "stuck")["seconds"]) == ("budget", 0.2)
    scores = board(tasks={"count": {"env": "x", "sides": {"stuck": side(best=30, round=600.0)}}}, minutes=[0.003])
    outcome = clock(tmp_path, scores | {"first_episodes": None}, "--seeds", "1")
    assert outcome.code == 1 and "it went on for 0.2 s after its 0.18 s and was ended" in outcome.err


def test_runs_with_busy_neighbors_are_repeated_and_the_calmest_is_kept_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter([0.5, 0.05, 0.7, 0.3, 0.4])
    monkeypatch.setattr(worker_process.ForeignLoad, "cores", lambda self, process=None: next(loads))
    checkout(tmp_path)
    outcome = clock(tmp_path, sides(a=side(best=1000), b=side(best=1000)), "--seeds", "1", "--repeats", "2")
    assert (result(tmp_path, "a")["foreign_load"], result(tmp_path, "b")["foreign_load"]) == (0.05, 0.3)
    assert "count seed 0 a: other programs took 0.50 cores, once more" in outcome.err
    assert "took more than a tenth of a core: b seed 0." in outcome.out and "Fake one \N{DAGGER}" in outcome.out


@pytest.mark.usefixtures("calm")
def test_what_compiles_runs_again_with_its_cache_if_that_is_asked_for(tmp_path: Path) -> None:
    checkout(tmp_path)
    content = sides(compiles=side(best=30, compiles=True), plain=side(best=1000))
    clock(tmp_path, content, "--seeds", "1")
    assert (result(tmp_path, "compiles")["compiled"], result(tmp_path, "plain")["compiled"]) == (True, False)
    line, plain = clock(tmp_path, content, "--seeds", "1", "--warm", "--json").json
    assert line["median"] is None, "the first run found no code, again"
    assert line["again"] is not None, "the second one did"
    assert plain["again"] is None
    assert "0 runs left" in clock(tmp_path, content, "--seeds", "1", "--warm", "--dry-run").out


@pytest.mark.usefixtures("calm")
def test_a_missing_library_is_one_line_with_the_way_to_get_it(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    other = {"title": "Other", "script": "fake.py", "python": ".venv-other", "setup": "make other"}
    broken = {"title": "Broken", "script": "broken.py", "python": ".venv-fake", "setup": "make broken"}
    (place / "benchmarks" / "broken.py").write_text("import no_such_library")
    workers = board()["workers"] | {"other": other, "broken": broken}
    all_sides = {"fast": side(best=1000)} | {name: {**side(), "worker": name} for name in ("other", "broken")}
    content = board(tasks={"count": task(sides=all_sides)}, workers=workers)
    outcome = clock(tmp_path, content, "--seeds", "1")
    lines = [line for line in outcome.err.splitlines() if "is left out" in line]
    assert outcome.code == 0 and lines == [
        f"Other is left out: {place}/.venv-other/bin/python is missing; `make other` in {place} installs it",
        "Broken is left out: ModuleNotFoundError: No module named 'no_such_library'; "
        f"`make broken` in {place} installs it",
    ]
    assert result(tmp_path, "fast")["versions"] == "fake 1.0"
    alone = clock(tmp_path, content, "--seeds", "1", "--side", "other")
    assert alone.code == 2 and alone.err.splitlines() == [f"error: {lines[0]}"]


def test_without_a_checkout_ours_runs_alone_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.zoo.clock.peers.OWN_CHECKOUT", tmp_path / "nowhere")
    path = write_board(tmp_path, sides(ours=own_side(), fast=side()))
    outcome = call("zoo", "clock", path, "--output-dir", tmp_path / "runs", "--dry-run", "--seeds", "1")
    assert outcome.err == (
        "Fake is left out: it needs a checkout of rl_training; name it with --checkout DIR, after `make fake` there\n"
    )
    assert "count seed 0 ours" in outcome.out and "count seed 0 fast" not in outcome.out


def test_ctrl_c_ends_the_worker_and_keeps_what_is_finished(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    path = write_board(tmp_path, sides(a=side(best=1000), endless=side(best=30, round=600.0)))
    options = ["--checkout", place, "--output-dir", tmp_path / "runs", "--seeds", "1", "--repeats", "0"]
    process = start_process("zoo", "clock", path, *options, env={"TMPDIR": str(tmp_path)})
    first = tmp_path / "runs" / "tiny" / "count" / "a-seed0.json"
    wait_for(lambda: first.exists() and bool(list(tmp_path.glob("clock-*/cold-0/request.json"))), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == EXIT_RESUMABLE and err.splitlines()[-1] == "stopped; run the same command to continue"
    assert list(tmp_path.glob("clock-*")) == [] and os.listdir(first.parent) == ["a-seed0.json"]


@pytest.mark.usefixtures("calm")
def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    checkout(tmp_path)
    content = sides(a=side(best=1000))
    clock(tmp_path, content, "--seeds", "1")
    path = tmp_path / "runs" / "tiny" / "count" / "a-seed0.json"
    for damage in ("{", "[]", path.read_text().replace('"seconds"', '"second"'), json.dumps({"points": 3})):
        path.write_text(damage)
        outcome = clock(tmp_path, content, "--seeds", "1")
        assert outcome.code == 2 and f"{path}: not the result of a run; move it away" in outcome.err, damage


@pytest.mark.usefixtures("calm")
def test_ours_is_an_ordinary_run_of_train_that_stops_when_it_has_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_env(tmp_path / "env", monkeypatch)
    checkout(tmp_path)
    changes = {"threshold": 0.8, "every": 256, "env": "zoo_test_env:Vote-v0", "budget": 600}
    content = board(tasks={"count": task(sides={"ours": own_side()}, **changes)}, episodes=40)
    line = clock(tmp_path, content, "--seeds", "1", "--json").json[0]
    assert (line["solved"], line["side"], line["of_ours"]) == (1, "ours", 1.0), line
    stored = result(tmp_path, "ours")
    assert stored["end"] == "solved" and stored["points"][-1][2] >= 0.8 and stored["points"][-1][3] == 40
    assert all(step % 128 == 0 for step, *_ in stored["points"]), "evaluated after whole rounds"
    assert stored["wall_seconds"] > stored["seconds"] > 0 and stored["versions"].startswith("rl_training ")
    assert stored["settings"]["total_timesteps"] == 2048 and stored["settings"]["eval_every"] == 256, "of the preset"
    loaded = load_board(tmp_path / "tiny.yaml").tasks[0]
    found = find_result([tmp_path / "runs"], loaded, loaded.sides[0], 0)
    assert found is not None and found.solved_after(600) == stored["seconds"] and found.solved_after(0.1) == math.inf


def test_the_environment_of_a_run_has_no_limit_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MINE", "kept")
    found = worker_process.clean_environment({"ADDED": "yes"})
    assert "OMP_NUM_THREADS" not in found and (found["MINE"], found["ADDED"]) == ("kept", "yes")


def test_two_sittings_do_not_share_a_directory(tmp_path: Path) -> None:
    from rl_training.storage.run_lock import hold_lock

    checkout(tmp_path)
    (tmp_path / "runs").mkdir()
    with hold_lock(tmp_path / "runs" / sitting.LOCK, "test", 0.1):
        outcome = clock(tmp_path, sides(a=side(best=1000)), "--seeds", "1")
    assert outcome.code == 5 and "where another sitting is in use by process" in outcome.err


def test_the_rows_of_benchmarks_are_untouched() -> None:
    assert len(load_manifest("classic").entries) > 50
