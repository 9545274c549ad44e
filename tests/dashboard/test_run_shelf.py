"""Which runs a dashboard shows, and what their rows say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rl_training.dashboard.run_shelf import RunShelf
from rl_training.errors import CheckpointError
from rl_training.storage.run_directory import open_run_directory
from stored_runs import store


def names(shelf: RunShelf) -> list[str]:
    return list(shelf.rows()["names"])


def row(shelf: RunShelf, name: str) -> dict[str, Any]:
    return next(each for each in shelf.rows()["rows"] if each["name"] == name)


def test_a_row_says_what_the_listing_says(tmp_path: Path) -> None:
    run = store(tmp_path, [(500, 10.0), (1000, 30.0), (1000, 20.0)], seed=3)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "train", "env_steps": 1000, "steps_per_second": 77.0}) + "\n")
    (run / "findings.jsonl").write_text('{"rule": "a"}\n{"rule": "b"}\n')
    found = row(RunShelf(output_dir=tmp_path), "ppo-seed3")
    expected = {"status": "finished", "algorithm": "ppo", "env": "CartPole-v1", "seed": "3", "steps": 1000}
    expected |= {"total": 1000, "last": 20.0, "best": 30.0, "scored_at": 1000, "speed": 1000.0, "findings": 2}
    expected["is_final"] = True
    assert expected.items() <= found.items()
    assert found["course"] == {"x": [500, 1000], "y": [10, 30]}, "the result is not a point of the curve"


def test_speed_of_a_living_run_is_that_of_its_last_line(tmp_path: Path) -> None:
    run = store(tmp_path, {100: 1.0}, status="running")
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "train", "env_steps": 150, "steps_per_second": 77.0}) + "\n")
    with open_run_directory(run).lock():
        found = row(RunShelf(output_dir=tmp_path), "ppo-seed0")
    assert (found["status"], found["speed"], found["steps"]) == ("running", 77.0, 150)


def test_a_run_whose_process_died_is_interrupted_without_a_change_of_its_files(tmp_path: Path) -> None:
    run = store(tmp_path, {100: 1.0}, status="running")
    shelf = RunShelf(output_dir=tmp_path)
    with open_run_directory(run).lock():
        first = shelf.rows()
        assert [each["status"] for each in first["rows"]] == ["running"]
    second = shelf.rows(after=first["change"])
    assert [each["status"] for each in second["rows"]] == ["interrupted"]


def test_only_changed_rows_are_sent_again(tmp_path: Path) -> None:
    runs = [store(tmp_path, {100: float(seed)}, seed=seed) for seed in range(3)]
    shelf = RunShelf(output_dir=tmp_path)
    first = shelf.rows()
    assert first["names"] == ["ppo-seed2", "ppo-seed1", "ppo-seed0"], "newest first"
    assert len(first["rows"]) == 3 and first["pending"] == 0
    assert shelf.rows(after=first["change"])["rows"] == []
    with (runs[1] / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "eval", "env_steps": 200, "eval_mean_return": 50.0}) + "\n")
    second = shelf.rows(after=first["change"])
    assert [(each["name"], each["last"]) for each in second["rows"]] == [("ppo-seed1", 50.0)]
    assert len(shelf.rows(after=0)["rows"]) == 3, "a new page gets everything"


def test_runs_appear_and_go(tmp_path: Path) -> None:
    shelf = RunShelf(output_dir=tmp_path / "later")
    assert names(shelf) == [] and shelf.run("ppo-seed0") is None
    run = store(tmp_path / "later", {100: 1.0})
    assert names(shelf) == ["ppo-seed0"] and shelf.run("ppo-seed0") is not None
    shutil.rmtree(run)
    assert shelf.run("ppo-seed0") is None, "gone before the next look"
    assert names(shelf) == []


def test_targets_are_folders_patterns_names_and_settings(tmp_path: Path) -> None:
    for seed in range(2):
        store(tmp_path, {100: 1.0}, seed=seed)
    store(tmp_path, {100: 1.0}, seed=5, name="other", gamma=0.5)
    (tmp_path / "not-a-run").mkdir()

    def chosen(*targets: str) -> set[str]:
        return set(names(RunShelf(targets, tmp_path)))

    assert chosen() == chosen(str(tmp_path)) == {"ppo-seed0", "ppo-seed1", "other"}
    assert chosen("ppo-*") == {"ppo-seed0", "ppo-seed1"}
    assert chosen("other", "ppo-seed0") == {"other", "ppo-seed0"}
    assert chosen(str(tmp_path / "other")) == {"other"}
    assert chosen("gamma=0.5") == {"other"}
    pattern = RunShelf(["ppo-*"], tmp_path)
    store(tmp_path, {100: 1.0}, seed=9)
    assert "ppo-seed9" in names(pattern), "a pattern is looked at again"
    with pytest.raises(CheckpointError, match="no such run"):
        chosen("missing")
    with pytest.raises(CheckpointError, match="not-a-run: has no runs; name a directory of runs"):
        chosen(str(tmp_path / "not-a-run"))


def test_equal_and_unprintable_names_get_names_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        store(tmp_path / folder, {100: 1.0})
    odd = store(tmp_path / "a", {100: 1.0}, seed=1)
    odd.rename(odd.with_name("x\x1b[31m\n"))
    shelf = RunShelf([str(tmp_path / "a"), str(tmp_path / "b")])
    found = set(names(shelf))
    assert found == {"ppo-seed0", "ppo-seed0 (2)", "x[31m"}
    paths = {shelf.run(name).path for name in found}  # type: ignore[union-attr]
    assert len(paths) == 3
    store(tmp_path / "a", {100: 1.0}, seed=7)
    assert found < set(names(shelf)), "names stay when others come"


def test_reading_has_a_budget(tmp_path: Path) -> None:
    for seed in range(4):
        store(tmp_path, {100: 1.0}, seed=seed)
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    shelf = RunShelf(output_dir=tmp_path, clock=clock)
    pending = []
    for _ in range(4):
        answer = shelf.rows(budget=1.5)
        pending.append(answer["pending"])
    assert pending[0] == 3 and pending[-1] == 0 and sorted(pending, reverse=True) == pending
    assert {each["last"] for each in shelf.rows()["rows"]} == {1.0}


def test_damaged_runs_have_a_row(tmp_path: Path) -> None:
    good = store(tmp_path, {100: 1.0})
    for number, content in enumerate([b"", b"{", b"[]", b"\xff\xfe", b'{"status": 5, "seed": "x", "number": -1}']):
        bad = tmp_path / f"bad{number}"
        shutil.copytree(good, bad)
        (bad / "run.json").write_bytes(content)
        (bad / "metrics.jsonl").write_bytes(content * 3)
        (bad / "config.yaml").write_bytes(content)
    shelf = RunShelf(output_dir=tmp_path)
    rows = {each["name"]: each for each in shelf.rows()["rows"]}
    assert len(rows) == 6 and rows["ppo-seed0"]["last"] == 1.0
    assert all(rows[f"bad{number}"]["last"] is None for number in range(5))
    json.dumps(rows, allow_nan=False)
