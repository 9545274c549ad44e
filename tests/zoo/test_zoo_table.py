"""From scores to verdicts, tables and reports. No training here."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rl_training.analysis.curves import read_curve
from rl_training.config.loading import load_config, save_config
from rl_training.errors import ConfigError
from rl_training.zoo.manifest import Manifest, list_manifests, load_manifest
from rl_training.zoo.plots import plot_environment
from rl_training.zoo.report import RESULTS_FOLDER, notes_text, write_report
from rl_training.zoo.results import Result, gather, load_results
from rl_training.zoo.runs import Job, same_settings, set_aside, settings, stop_at, stored_score
from rl_training.zoo.table import COLUMNS, CSV_COLUMNS, csv_text, make_table, markdown, passes, summarize
from zoo_helpers import curve, entry_of

ENTRY = entry_of()


def score(mean_return: float, seconds: float = 60.0) -> dict[str, Any]:
    return {
        "mean_return": mean_return,
        "env_steps": 99_996,
        "wall_seconds": seconds,
        "settings": settings(ENTRY.preset),
    }


def cells_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


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
    returns: list[float], expected: bool
) -> None:
    assert passes(ENTRY.row, returns) is expected


@pytest.mark.parametrize(("returns", "expected"), [([45.0, 150.0, 46.0], True), ([45.0, 45.0, 151.0], False)])
def test_a_control_passes_when_every_seed_stays_below_its_ceiling(returns: list[float], expected: bool) -> None:
    entry = entry_of("ppo/cartpole_masked", floor=None, bar=None, must_stay_below=150, reference=45)
    assert passes(entry.row, returns) is expected
    line = summarize(entry, [score(value) for value in returns], [curve([1000], [500.0])] * 3)
    assert line["steps_to_floor"] is None, "a control has no floor to reach"
    row = cells_of(markdown([line], 3))[2]
    assert row[9:12] == ["-", "stay <= 150", "45 at 100k (its definition)"]
    assert row[-1] == ("pass" if expected else "MISS") + " (3 of 5 seeds)"


def test_summary_has_all_the_figures() -> None:
    returns = [500.0, 490.0, 499.0, 480.0, 500.0]
    scores = [score(value, seconds) for value, seconds in zip(returns, (60, 60, 600, 60, 60), strict=True)]
    curves = [curve([10_000, 20_000, 40_000], [100.0, 475.0, 500.0])] * 4 + [curve([10_000, 40_000], [9.0, 9.0])]
    line = summarize(ENTRY, scores, curves)
    assert line["verdict"] == "pass"
    assert line["mean"] == pytest.approx(493.8) and line["standard_error"] == pytest.approx(3.929, abs=1e-3)
    assert line["iqm"] == pytest.approx((490 + 499 + 500) / 3)
    assert 480.0 <= line["iqm_low"] < line["iqm"] < line["iqm_high"] <= 500.0
    assert (line["median"], line["low"], line["high"]) == (499.0, 480.0, 500.0)
    # Over the seeds that reached it: at step 20,000, after 20 s.
    assert (line["steps_to_floor"], line["seeds_that_reached_floor_in_training"]) == (20_000, 4)
    assert line["minutes_to_floor"] == pytest.approx(20 / 60, abs=0.01)
    good = (10_000 * 100 + 10_000 * 287.5 + 20_000 * 487.5) / 40_000
    assert line["area"] == pytest.approx((4 * good + 9) / 5)
    assert (line["env_steps"], line["minutes"]) == (99_996, 1.0)
    assert line["reference"] == 500 and line["source"] == "its definition" and line["protocol"] == "exact"


def test_time_to_the_floor_is_the_median_of_the_seeds_and_steps_are_the_most() -> None:
    curves = [curve([1_000, steps], [0.0, 500.0]) for steps in (10_000, 20_000, 90_000)]
    scores = [score(500.0) | {"env_steps": steps} for steps in (99_000, 99_996, 98_000)]
    line = summarize(ENTRY, scores, curves)
    assert (line["steps_to_floor"], line["minutes_to_floor"]) == (20_000, round(20 / 60, 2))
    assert line["env_steps"] == 99_996


def test_a_fraction_is_scored_by_its_last_evaluation_even_if_the_full_run_has_a_score() -> None:
    whole = {"mean_return": 500.0, "env_steps": 100_000.0, "wall_seconds": 600.0}
    found = Result(curve([20_000, 39_000, 60_000], [10.0, 20.0, 30.0]), 100_000, whole)
    (line,) = make_table([ENTRY], {ENTRY.name: {0: found}}, 1, fraction=0.4)
    assert (line["scores"], line["env_steps"], line["minutes"]) == ([20.0], 39_000, round(39 / 60, 2))
    assert line["verdict"] == "at 40% of the budget" and line["area"] == pytest.approx((20 * 10 + 19 * 15) / 39)
    (line,) = make_table([ENTRY], {ENTRY.name: {0: found}}, 1)
    assert (line["scores"], line["minutes"]) == ([500.0], 10.0)


def test_a_fraction_of_a_budget_is_rounded_up_to_a_whole_step() -> None:
    assert ENTRY.preset.total_timesteps == 100_000
    shares = {1.0: 100_000, 0.5: 50_000, 1 / 3: 33_334, 0.07: 7_000, 0.55: 55_000}
    assert {share: stop_at(ENTRY, share) for share in shares} == shares


def test_a_missing_seed_does_not_pass_and_a_failed_one_shows_its_error() -> None:
    line = summarize(ENTRY, [score(500.0)] * 4 + [None], [], {4: "loss became NaN"})
    assert line["verdict"] == "4 of 5 seeds; seed 4 failed: loss became NaN"
    assert "median" not in line
    assert summarize(ENTRY, [None] * 5, [])["verdict"] == "0 of 5 seeds"


def test_markdown_and_csv_have_a_line_of_all_columns_per_row() -> None:
    lines = [
        summarize(ENTRY, [score(500.0)] * 5, [curve([20_000], [500.0])] * 5),
        summarize(entry_of("dqn/cartpole"), [score(500.0), None], []),
        summarize(entry_of("a2c/cartpole"), [score(9.0)] * 5, [curve([20_000], [9.0])] * 5),
    ]
    rows = cells_of(markdown(lines, 5))
    assert {len(row) for row in rows} == {len(COLUMNS)} and len(rows) == 5
    assert rows[2] == [
        "ppo/cartpole", "99,996", "500.0 ± 0.0", "500.0 [500.0, 500.0]", "500.0", "500.0 .. 500.0", "20,000", "0.3",
        "500.0", "475", "495", "500 at 100k (its definition)", "1.0", "pass",
    ]  # fmt: skip
    assert markdown(lines, 5).endswith("\n5 seeds, 100 deterministic episodes each, reset seeds from 10000.\n")
    assert rows[3][0] == "dqn/cartpole" and rows[3][-1] == "1 of 2 seeds"
    assert rows[4][6] == "-" and rows[4][-1] == "MISS"
    assert [line.get("seeds_that_reached_floor_in_training", "absent") for line in lines] == [5, "absent", 0]
    parsed = list(csv.DictReader(csv_text(lines).splitlines()))
    assert [line["name"] for line in parsed] == ["ppo/cartpole", "dqn/cartpole", "a2c/cartpole"]
    assert tuple(parsed[0]) == CSV_COLUMNS and float(parsed[0]["mean"]) == 500.0 and parsed[1]["mean"] == ""


def test_fewer_seeds_than_the_rule_asks_for_are_marked_and_one_has_no_interval() -> None:
    (row,) = cells_of(markdown([summarize(ENTRY, [score(500.0)], [curve([20_000], [500.0])])], 1))[2:]
    assert row[3] == "500.0" and row[-1] == "pass (1 of 5 seeds)"
    four = cells_of(markdown([summarize(ENTRY, [score(9.0)] * 4, [])], 4))[2]
    assert four[3] == "9.0 [9.0, 9.0]" and four[-1] == "MISS (4 of 5 seeds)"


def test_steps_to_the_floor_count_the_seeds_that_reached_it_and_need_curves() -> None:
    curves = [curve([20_000], [500.0])] * 4 + [curve([20_000], [9.0])]
    some, none = summarize(ENTRY, [score(500.0)] * 5, curves), summarize(ENTRY, [score(500.0)] * 5, [])
    assert cells_of(markdown([some], 5))[2][6] == "20,000 (4 of 5)"
    assert cells_of(markdown([none], 5))[2][6] == "-" and none["seeds_that_reached_floor_in_training"] is None


def test_a_row_that_misses_seeds_shows_those_it_has() -> None:
    row = cells_of(markdown([summarize(ENTRY, [score(490.0), score(500.0), None], [])], 3))[2]
    assert row[2:6] == ["495.0 ± 5.0", "", "", "490.0 .. 500.0"] and row[-1] == "2 of 3 seeds"


def test_a_reference_is_shown_with_its_steps() -> None:
    longer = entry_of("ppo/cartpole", reference=500, reference_steps=2_000_000)
    budget = entry_of("a2c/cartpole", reference=500, budget=500_000)
    for entry, text in ((longer, "500 at 2M"), (ENTRY, "500 at 100k"), (budget, "500 at 500k")):
        assert cells_of(markdown([summarize(entry, [None], [])], 1))[2][11].startswith(text), text


def test_a_stored_score_counts_for_any_place_but_not_for_changed_settings(tmp_path: Path) -> None:
    job = Job(ENTRY, 3, str(tmp_path))
    assert stored_score(job) is None
    job.run_dir.mkdir()
    stored = score(500.0)
    (job.run_dir / "score.json").write_text(json.dumps(stored))
    assert stored_score(job) is None, "without run.json, the run may be unfinished"
    (job.run_dir / "run.json").write_text(json.dumps({"status": "finished", "env_steps": stored["env_steps"]}))
    assert stored_score(job) == stored
    stored["settings"]["total_timesteps"] += 1
    (job.run_dir / "score.json").write_text(json.dumps(stored))
    assert stored_score(job) is None
    (job.run_dir / "score.json").write_text('{"mean_return": 5')
    assert stored_score(job) is None, "cut off by a power failure"


def test_settings_are_the_same_for_every_seed_and_folder_and_for_fields_added_since(tmp_path: Path) -> None:
    preset = load_config("sac/pendulum")
    save_config(Job(entry_of("sac/pendulum"), 1, str(tmp_path)).config, tmp_path / "config.yaml")
    assert same_settings(tmp_path / "config.yaml", preset)
    stored = settings(preset)
    before_a_field_was_added = {key: value for key, value in stored.items() if key != "tensorboard"}
    assert same_settings(before_a_field_was_added, preset)
    assert not same_settings(stored | {"num_envs": 2}, preset)
    assert not same_settings(stored | {"a_field_long_gone": 1}, preset)
    assert not same_settings(tmp_path / "no_such_run" / "config.yaml", preset)


def test_an_older_run_is_set_aside_under_a_free_name(tmp_path: Path) -> None:
    for name in ("old-run", "old-run-2"):
        (tmp_path / "run").mkdir()
        set_aside(tmp_path / "run")
        assert not (tmp_path / "run").exists() and (tmp_path / name).is_dir()


def test_a_curve_has_one_point_per_evaluation_and_the_clock_of_training(tmp_path: Path) -> None:
    lines = [
        {"kind": "train", "env_steps": 1_000, "mean_return": 500.0, "wall_seconds": 7.5},
        {"kind": "eval", "env_steps": 1_000, "eval_mean_return": 400.0},
        {"kind": "eval", "env_steps": 2_000, "eval_mean_return": 475.0},
        {"kind": "eval", "env_steps": 2_000, "eval_mean_return": 500.0, "eval_seed": 10_000},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = read_curve(tmp_path)
    assert read.steps.tolist() == [1_000, 2_000] and read.returns.tolist() == [400.0, 475.0]
    assert read.seconds.tolist() == [7.5, 7.5]
    assert read.first_at(475.0) == 1 and read.first_at(501.0) is None
    assert read.until(1_990).steps.tolist() == [1_000]
    assert read.until(1_999).steps.tolist() == [1_000, 2_000], "a rollout may end a little late"
    assert read_curve(tmp_path / "none").steps.size == 0


def stored_runs(folder: Path) -> Manifest:
    """Two rows of one env with finished seeds, as a benchmark leaves them."""
    classic = load_manifest("classic")
    for name in ("ppo/cartpole", "trpo/cartpole"):
        for seed in range(3):
            job = Job(next(entry for entry in classic.entries if entry.name == name), seed, str(folder))
            job.run_dir.mkdir(parents=True)
            stored = score(490.0 + seed) | {"settings": settings(job.config)}
            (job.run_dir / "score.json").write_text(json.dumps(stored))
            (job.run_dir / "run.json").write_text(json.dumps({"status": "finished", "env_steps": stored["env_steps"]}))
            lines = [
                {"kind": "eval", "env_steps": step, "eval_mean_return": min(500.0, step / 100 + seed)}
                for step in range(10_000, 100_001, 10_000)
            ]
            (job.run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return classic


def test_report_has_page_figures_and_pictures(tmp_path: Path) -> None:
    classic = stored_runs(tmp_path / "runs")
    entries = classic.select(["ppo/cartpole", "trpo/cartpole", "dqn/cartpole"])
    results = gather(entries, 3, str(tmp_path / "runs"))
    table = make_table(entries, results, 3)
    written = write_report(classic, entries, table, results, 3, tmp_path / "out")
    assert {path.relative_to(tmp_path / "out").as_posix() for path in written} == {
        "classic.md", "classic.csv", "classic.json", "classic.png", "cartpole-v1.png", "results/ppo/cartpole.json",
        "results/trpo/cartpole.json",
    }  # fmt: skip
    page = (tmp_path / "out" / "classic.md").read_text()
    assert "| ppo/cartpole | 99,996 | 491.0 ± 0.6 |" in page and "![cartpole-v1](cartpole-v1.png)" in page
    assert "**measured**" in page and "**rl-zoo**" not in page, "only the protocols in use"
    assert "0 of 3 seeds" in page and "MISS (3 of 5 seeds)" in page
    stored = {line["name"]: line["scores"] for line in json.loads((tmp_path / "out" / "classic.json").read_text())}
    assert stored == {"dqn/cartpole": [], "ppo/cartpole": [490.0, 491.0, 492.0], "trpo/cartpole": [490.0, 491.0, 492.0]}
    for name in ("classic.png", "cartpole-v1.png"):
        with Image.open(tmp_path / "out" / name) as image:
            assert min(image.size) > 300 and len(image.convert("RGB").getcolors(10**6) or []) > 20
    again = write_report(classic, entries, table, results, 3, tmp_path / "again")
    for first, second in zip(written, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), f"{first.name} is the same each time"


def test_the_notes_of_rows_are_printed_below_the_table() -> None:
    noted = replace(ENTRY, row=ENTRY.row.model_copy(update={"note": "it hovers.\n"}))
    assert notes_text([ENTRY, noted]) == f"Notes:\n\n- **{ENTRY.name}**: it hovers."
    assert notes_text([ENTRY]) == ""


def test_plots_without_matplotlib_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="plots need matplotlib: install the extra `plots`"):
        plot_environment("CartPole-v1", [(ENTRY, [curve([1, 2], [0.0, 1.0])])], tmp_path)


def test_committed_reports_were_made_with_the_packaged_presets(project_root: Path) -> None:
    reports = sorted((project_root / "docs" / "benchmarks").glob("*.json"))
    assert "classic" in [path.stem for path in reports]
    for path in reports:
        entries = {entry.name: entry for entry in load_manifest(path.stem).entries}
        for line in json.loads(path.read_text()):
            if "settings" in line:
                assert same_settings(line["settings"], entries[line["name"]].preset), line["name"]


def test_committed_results_match_the_packaged_presets_and_their_pages(project_root: Path) -> None:
    reports = project_root / "docs" / "benchmarks"
    entries = {entry.name: entry for name in list_manifests() for entry in load_manifest(name).entries}
    pages = [json.loads(path.read_text()) for path in sorted(reports.glob("*.json"))]
    scores = {line["name"]: line["scores"] for page in pages for line in page}
    stored = sorted((reports / RESULTS_FOLDER).rglob("*.json"))
    # Of scripts in benchmarks/, `zoo clock`, and scripts/calibrate_findings.py.
    elsewhere = {"defaults", "actors", "bfloat16.json", "overhead.json", "clock", "findings.json"}
    kept = [path for path in stored if not elsewhere & set(path.relative_to(reports).parts)]
    assert kept
    for path in kept:
        name = path.relative_to(reports / RESULTS_FOLDER).with_suffix("").as_posix()
        results = load_results(entries[name], reports / RESULTS_FOLDER)
        assert results, f"{name}: its preset has changed since"
        if name not in scores:  # a row that is newer than its page
            assert f"| `{name}` |" in (project_root / "docs" / "benchmarks.md").read_text(encoding="utf-8"), name
            continue
        assert [each.score["mean_return"] for each in results.values() if each.score is not None] == scores[name]
