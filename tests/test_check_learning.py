"""The learning check's own logic: its targets, its verdicts and its table. No training here."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rl_training.experiment.config import load_config, save_config

ROW = {"preset": "ppo/cartpole", "budget": 100_000, "floor": 475, "bar": 495, "peer": "500"}


@pytest.fixture(scope="module")
def script(project_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_learning", project_root / "scripts" / "check_learning.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(mean_return: float, *, reached: int | None = 20_000, seconds: float = 60.0) -> dict[str, Any]:
    return {
        "mean_return": mean_return,
        "env_steps": 99_996,
        "wall_seconds": seconds,
        "steps_to_floor": reached,
        "settings": {"algo": "ppo"},
    }


def test_every_target_has_a_preset_that_keeps_to_its_budget(script: ModuleType) -> None:
    rows = script.load_targets()
    assert len({row["preset"] for row in rows}) == len(rows)
    for row in rows:
        config = load_config(row["preset"])
        assert config.total_timesteps <= row["budget"], row["preset"]
        assert "must_stay_below" in row or row["floor"] <= row["bar"], row["preset"]
        assert ("must_stay_below" in row) != ("floor" in row or "bar" in row), row["preset"]


def test_every_packaged_preset_has_a_target(script: ModuleType, project_root: Path) -> None:
    folder = project_root / "src" / "rl_training" / "assets" / "configs"
    presets = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")}
    algorithms = {"ppo", "a2c", "impala", "appo", "trpo", "ppg", "recurrent_ppo"}
    algorithms |= {"dqn", "c51", "ddpg", "d4pg", "td3", "sac", "naf", "mpo"}
    assert {name for name in presets if name.split("/")[0] in algorithms} <= {
        row["preset"] for row in script.load_targets()
    }


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([500.0, 500.0, 500.0, 500.0, 500.0], True),
        ([475.0, 475.0, 495.0, 500.0, 500.0], True),  # exactly at floor and bar
        ([100.0, 475.0, 495.0, 500.0, 500.0], True),  # one seed of five may fail
        ([100.0, 100.0, 500.0, 500.0, 500.0], False),  # two may not, whatever the median
        ([480.0, 480.0, 494.9, 500.0, 500.0], False),  # all at the floor, median short of the bar
    ],
)
def test_verdict_needs_four_seeds_of_five_at_the_floor_and_the_median_at_the_bar(
    script: ModuleType, returns: list[float], expected: bool
) -> None:
    assert script.passes(ROW, returns) is expected


@pytest.mark.parametrize(("returns", "expected"), [([45.0, 150.0, 46.0], True), ([45.0, 45.0, 151.0], False)])
def test_a_control_passes_when_every_seed_stays_below_its_ceiling(
    script: ModuleType, returns: list[float], expected: bool
) -> None:
    row = {"preset": "ppo/cartpole_masked", "budget": 100_000, "must_stay_below": 150, "peer": "45"}
    assert script.passes(row, returns) is expected
    entry = script.summarise(row, [score(value, reached=None) for value in returns])
    line = script.markdown([entry], 3).splitlines()[2]
    assert "| - | - | stay <= 150 | 45 |" in line and line.endswith("| pass |" if expected else "| MISS |")
    assert script.floor_of("ppo/cartpole_masked") == float("inf")


def test_summary_has_median_spread_and_steps_to_floor_over_the_seeds_that_got_there(script: ModuleType) -> None:
    scores = [
        score(500.0),
        score(490.0, reached=None),
        score(499.0, reached=40_000, seconds=600.0),
        score(480.0),
        score(500.0),
    ]
    entry = script.summarise(ROW, scores)
    assert entry["verdict"] == "pass"
    assert (entry["median"], entry["low"], entry["high"]) == (499.0, 480.0, 500.0)
    assert (entry["steps_to_floor"], entry["seeds_that_reached_floor_in_training"]) == (20_000, 4)
    assert (entry["env_steps"], entry["minutes"], entry["settings"]) == (99_996, 1.0, {"algo": "ppo"})


def test_a_missing_seed_is_no_pass(script: ModuleType) -> None:
    entry = script.summarise(ROW, [score(500.0)] * 4 + [None])
    assert entry["verdict"] == "4 of 5 seeds"
    assert "median" not in entry


def test_table_has_one_line_of_ten_cells_per_preset(script: ModuleType) -> None:
    complete = script.summarise(ROW, [score(500.0)] * 5)
    partial = script.summarise(ROW | {"preset": "dqn/cartpole"}, [score(500.0), None])
    never = script.summarise(ROW | {"preset": "a2c/cartpole"}, [score(9.0, reached=None)] * 5)
    lines = script.markdown([complete, partial, never], 5).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert {len(row) for row in cells} == {10}
    assert cells[2] == [
        "ppo/cartpole", "99,996", "500.0", "500.0 .. 500.0", "20,000", "475", "495", "500", "1.0", "pass",
    ]  # fmt: skip
    assert cells[3][0] == "dqn/cartpole" and cells[3][-1] == "1 of 2 seeds"
    assert cells[4][4] == "-" and cells[4][-1] == "MISS"


def test_a_stored_score_counts_for_any_place_but_not_for_changed_settings(script: ModuleType, tmp_path: Path) -> None:
    config = script.run_config("ppo/cartpole", 3, str(tmp_path))
    run_dir = tmp_path / config.run_name
    assert script.stored_score("ppo/cartpole", 3, str(tmp_path)) is None
    run_dir.mkdir()
    stored = score(500.0) | {"settings": script.settings(script.run_config("ppo/cartpole", 0, "elsewhere"))}
    (run_dir / "score.json").write_text(json.dumps(stored))
    assert script.stored_score("ppo/cartpole", 3, str(tmp_path)) == stored
    stored["settings"]["total_timesteps"] += 1
    (run_dir / "score.json").write_text(json.dumps(stored))
    assert script.stored_score("ppo/cartpole", 3, str(tmp_path)) is None


def test_settings_are_the_same_for_every_seed_and_folder_and_for_fields_added_since(
    script: ModuleType, tmp_path: Path
) -> None:
    preset = load_config("sac/pendulum")
    save_config(script.run_config("sac/pendulum", 1, str(tmp_path)), tmp_path / "config.yaml")
    assert script.same_settings(tmp_path / "config.yaml", preset)
    stored = script.settings(preset)
    before_a_field_was_added = {key: value for key, value in stored.items() if key != "tensorboard"}
    assert script.same_settings(before_a_field_was_added, preset)
    assert not script.same_settings(stored | {"num_envs": 2}, preset)
    assert not script.same_settings(stored | {"a_field_long_gone": 1}, preset)
    assert not script.same_settings(tmp_path / "no_such_run" / "config.yaml", preset)


def test_an_older_run_is_set_aside_under_a_free_name(script: ModuleType, tmp_path: Path) -> None:
    for number in (1, 2):
        run_dir = tmp_path / "run"
        run_dir.mkdir()
        script.set_aside(run_dir)
        assert not run_dir.exists() and (tmp_path / f"old-run-{number}").is_dir()


def test_steps_to_floor_is_the_first_evaluation_at_or_above_it(script: ModuleType, tmp_path: Path) -> None:
    lines = [
        {"kind": "train", "env_steps": 1_000, "mean_return": 500.0},
        {"kind": "eval", "env_steps": 1_000, "eval_mean_return": 400.0},
        {"kind": "eval", "env_steps": 2_000, "eval_mean_return": 475.0},
        {"kind": "eval", "env_steps": 3_000, "eval_mean_return": 500.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert script.steps_to_floor(tmp_path, 475.0) == 2_000
    assert script.steps_to_floor(tmp_path, 501.0) is None


def test_report_holds_the_table_and_its_settings(script: ModuleType, tmp_path: Path) -> None:
    table = [script.summarise(ROW, [score(500.0)] * 5)]
    script.write_report(table, script.markdown(table, 5), tmp_path / "benchmarks")
    assert "| ppo/cartpole | 99,996 | 500.0 |" in (tmp_path / "benchmarks" / "learning.md").read_text()
    assert json.loads((tmp_path / "benchmarks" / "learning.json").read_text()) == table


def test_committed_report_was_made_with_the_packaged_presets(script: ModuleType, project_root: Path) -> None:
    report = json.loads((project_root / "docs" / "benchmarks" / "learning.json").read_text())
    assert {entry["preset"] for entry in report} >= {"ppo/cartpole", "dqn/cartpole", "sac/pendulum"}
    for entry in report:
        if "settings" in entry:
            assert script.same_settings(entry["settings"], load_config(entry["preset"])), entry["preset"]
