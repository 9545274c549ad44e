"""Comparison of finished and unfinished runs with a published curve. Does not train."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call
from rl_training.zoo.comparison import comparison_section
from rl_training.zoo.manifest import Entry, load_manifest
from rl_training.zoo.plots import COLORS, _draw_all
from rl_training.zoo.report import drawn_curves, write_report
from rl_training.zoo.results import gather
from rl_training.zoo.runs import note_failure, settings
from rl_training.zoo.table import make_table
from zoo_helpers import curve, entry_of, manifest_with_curve, store_run


def table_of(entries: Sequence[Entry], seeds: int, folder: Path, fraction: float = 1.0) -> list[dict[str, Any]]:
    return make_table(entries, gather(entries, seeds, str(folder)), seeds, fraction)


def test_unfinished_runs_are_compared_at_the_steps_they_have_reached(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path).entries
    store_run(entry, 0, tmp_path / "runs", {20_000: 50.0, 40_000: 150.0, 60_000: 250.0})
    store_run(entry, 1, tmp_path / "runs", {20_000: 70.0, 40_000: 190.0})
    (line,) = table_of([entry], 5, tmp_path / "runs")
    assert line["verdict"] == "0 of 5 seeds, 2 under way at 40,000 .. 60,000 of 100,000 steps"
    assert "median" not in line and line["scores"] == [], "an evaluation during training is not a score"
    assert (line["published_at_step"], line["published"], line["ours_at_step"]) == (40_000, 200.0, 170.0)
    at = {each["step"]: each for each in line["against_published"]}
    assert list(at) == [20_000, 40_000, 50_000], "steps that no run has reached are left out"
    assert at[20_000] == {
        "step": 20_000, "of_steps": 100_000, "seeds": 2, "of_seeds": 5, "mean": 60.0, "by_seed": {"0": 50.0, "1": 70.0},
        "standard_error": pytest.approx(10.0), "published": 100.0, "published_standard_error": 10.0, "ratio": 0.6,
    }  # fmt: skip
    assert at[50_000]["by_seed"] == {"0": 200.0} and at[50_000]["seeds"] == 1, "between two evaluations of seed 0"
    assert at[50_000]["published"] == pytest.approx(250.0) and at[50_000]["ratio"] == pytest.approx(0.8)

    (part,) = table_of([entry], 2, tmp_path / "runs", fraction=0.4)
    assert part["verdict"] == "at 40% of the budget" and part["scores"] == [150.0, 190.0]
    assert [each["step"] for each in part["against_published"]] == [20_000, 40_000], "a part ends where it ends"


def test_runs_of_other_settings_and_failed_ones_do_not_count_as_progress(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path).entries
    store_run(entry, 0, tmp_path / "runs", {20_000: 50.0}, num_envs=entry.preset.num_envs + 1)
    note_failure(store_run(entry, 1, tmp_path / "runs", {20_000: 70.0}), "loss became NaN")
    (line,) = table_of([entry], 2, tmp_path / "runs")
    assert line["verdict"] == "0 of 2 seeds; seed 1 failed: loss became NaN"
    assert [each["by_seed"] for each in line["against_published"]] == [{"1": 70.0}]


def test_without_a_common_step_there_is_no_comparison(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path, uncounted_steps=60_000).entries
    nothing: dict[str, Any] = {
        "published_at_step": None,
        "published": None,
        "ours_at_step": None,
        "against_published": [],
    }
    assert table_of([entry], 1, tmp_path / "runs")[0].items() >= nothing.items()
    store_run(entry, 0, tmp_path / "runs", {20_000: 50.0})
    assert table_of([entry], 1, tmp_path / "runs")[0].items() >= nothing.items()


def test_a_ratio_needs_two_scores_above_zero(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path, points=[[0, -21.0], [90_000, 20.0]]).entries
    store_run(entry, 0, tmp_path / "runs", {20_000: 3.0, 100_000: 21.0})
    lines = table_of([entry], 1, tmp_path / "runs")[0]["against_published"]
    assert lines[0]["ratio"] is None and lines[-1]["ratio"] == pytest.approx(21 / 20)
    (losing,) = manifest_with_curve(tmp_path / "losing").entries
    store_run(losing, 0, tmp_path / "lost", {20_000: -3.0, 100_000: -1.0})
    assert {line["ratio"] for line in table_of([losing], 1, tmp_path / "lost")[0]["against_published"]} == {None}


def test_ours_is_the_mean_of_the_seeds_that_have_been_evaluated_around_the_step(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path).entries
    for seed, value in enumerate((10.0, 20.0, 90.0)):
        store_run(entry, seed, tmp_path / "runs", {20_000: value, 60_000: value})
    store_run(entry, 3, tmp_path / "runs", {30_000: 500.0, 60_000: 500.0})
    at = {line["step"]: line for line in table_of([entry], 4, tmp_path / "runs")[0]["against_published"]}
    assert (at[20_000]["mean"], at[20_000]["seeds"]) == (pytest.approx(40.0), 3), "seed 3 had not been evaluated yet"
    assert (at[50_000]["mean"], at[50_000]["seeds"]) == (pytest.approx(155.0), 4)


def test_a_published_curve_that_ends_between_two_steps_is_compared_at_its_end(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path, points=[[0, 10.0], [16_000, 20.0]], uncounted_steps=0).entries
    store_run(entry, 0, tmp_path / "runs", {10_000: 10.0, 20_000: 30.0})
    (line,) = table_of([entry], 1, tmp_path / "runs")[0]["against_published"]
    assert (line["step"], line["mean"], line["published"]) == (16_000, pytest.approx(22.0), 20.0)


def test_report_has_a_section_columns_and_the_source(tmp_path: Path) -> None:
    manifest = manifest_with_curve(tmp_path)
    (entry,) = manifest.entries
    for seed, last in enumerate((300.0, 340.0)):
        store_run(entry, seed, tmp_path / "runs", {20_000: 50.0, 60_000: last})
    options = ["--seeds", 5, "--output-dir", tmp_path / "runs"]
    shown = call("zoo", "table", tmp_path / "tiny.yaml", *options)
    assert "Comparison with published curves" in shown.out and "60,000 of 100,000 *" in shown.out
    assert call("zoo", "table", tmp_path / "tiny.yaml", *options, "--write", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "## Comparison with published curves" in page and "- **peer**: known exactly" in page
    whole = "| ppo/cartpole | 2 of 5 | 60,000 of 100,000 * | 320.0 ± 20.0 | 300.0 ± 20.0 | 1.07 | 0: 300.0, 1: 340.0 |"
    assert whole in page
    (line,) = csv.DictReader((tmp_path / "out" / "tiny.csv").read_text().splitlines())
    assert (line["published_at_step"], line["published"], line["ours_at_step"]) == ("60000", "300.0", "320.0")
    (line,) = json.loads((tmp_path / "out" / "tiny.json").read_text())
    assert line["published_at_step"] == 60_000 and line["against_published"][-1]["by_seed"]["1"] == 340.0
    assert (tmp_path / "out" / "cartpole-v1.png").is_file(), "of runs that are not finished"


def test_the_section_says_that_the_envs_are_of_another_version(tmp_path: Path) -> None:
    manifest = load_manifest("mujoco")
    entry = next(e for e in manifest.entries if e.name == "td3/hopper")
    store_run(entry, 0, tmp_path, {20_000: 100.0, 40_000: 200.0})
    section = comparison_section(manifest, table_of(manifest.entries, 5, tmp_path))
    assert "| td3/hopper | 1 of 5 | 40,000 of 1,000,000 * | 200.0 ± - |" in section and "sac/hopper" not in section
    assert "thu-ml/tianshou at 22c0b9b" in section and "Its envs are v3, ours v5" in section
    classic = load_manifest("classic")
    assert comparison_section(classic, table_of(classic.entries, 1, Path("none"))) == ""


def test_finished_runs_are_compared_too(tmp_path: Path) -> None:
    manifest = manifest_with_curve(tmp_path)
    (entry,) = manifest.entries
    job = store_run(entry, 0, tmp_path / "runs", {50_000: 400.0, 100_000: 500.0}, "finished")
    score = {"mean_return": 500.0, "env_steps": 100_000, "wall_seconds": 60.0, "settings": settings(entry.preset)}
    (job.run_dir / "score.json").write_text(json.dumps(score))
    results = gather(manifest.entries, 1, str(tmp_path / "runs"))
    table = make_table(manifest.entries, results, 1)
    assert table[0]["verdict"].startswith("pass") and table[0]["published_at_step"] == 100_000
    assert table[0]["against_published"][-1]["ratio"] == 1.0
    assert write_report(manifest, manifest.entries, table, results, 1, tmp_path / "out")


def test_a_plot_has_the_published_curve_dashed_a_little_past_our_own(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    (entry,) = manifest_with_curve(tmp_path).entries
    axes = Figure().subplots()
    _draw_all(axes, [(entry, [curve([20_000, 40_000], [50.0, 150.0])])])
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    drawn = lines["ppo, published"]
    assert drawn.get_linestyle() == "--" and lines["ppo"].get_linestyle() == "-"
    assert drawn.get_color() == lines["ppo"].get_color() == COLORS[0]
    assert drawn.get_xydata().tolist() == [[10_000, 0.0], [20_000, 100.0], [60_000, 300.0]]
    assert "ppo, published" in axes.get_legend_handles_labels()[1]
    assert axes.get_xscale() == "linear" and 60_000 <= axes.get_xlim()[1] < 65_000

    axes = Figure().subplots()
    _draw_all(axes, [(entry, [curve([20_000, 100_000], [50.0, 500.0])])])
    (drawn,) = [line for line in axes.get_lines() if line.get_label() == "ppo, published"]
    assert drawn.get_xydata().tolist()[-1] == [100_000, 500.0], "no further than it was published"


def test_a_plot_leaves_out_runs_that_have_only_started(tmp_path: Path) -> None:
    (entry,) = manifest_with_curve(tmp_path).entries
    store_run(entry, 0, tmp_path / "runs", dict.fromkeys(range(20_000, 80_001, 20_000), 1.0))
    store_run(entry, 1, tmp_path / "runs", {20_000: 1.0, 40_000: 2.0})
    store_run(entry, 2, tmp_path / "runs", {20_000: 1.0})
    found = gather([entry], 5, str(tmp_path / "runs"))[entry.name]
    ends = [each.steps[-1] for each in drawn_curves(entry, found)]
    assert ends == [80_000, 40_000]


def test_a_bar_is_drawn_if_a_run_is_near_its_end() -> None:
    from matplotlib.figure import Figure

    for last, labels in ((100_000, ["ppo", "bar"]), (66_700, ["ppo", "bar"]), (66_600, ["ppo"])):
        axes = Figure().subplots()
        _draw_all(axes, [(entry_of(reference=None), [curve([20_000, last], [50.0, 150.0])])])
        assert axes.get_legend_handles_labels()[1] == labels, last


def test_one_short_run_without_anything_published_is_drawn_on_a_plain_axis() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    _draw_all(axes, [(entry_of(reference=None), [curve([20_000, 40_000], [50.0, 150.0])])])
    assert axes.get_xscale() == "linear" and axes.get_xlim() == (0, pytest.approx(40_800))
