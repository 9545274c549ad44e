"""The results that a report saves, and a later report without the runs. Does not train."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cli_helpers import call
from rl_training.errors import ConfigError
from rl_training.storage.checkpoints import list_checkpoints
from rl_training.zoo import results as zoo_results
from rl_training.zoo.manifest import Entry, load_manifest
from rl_training.zoo.report import curves_of, drawn_curves, provenance, write_report
from rl_training.zoo.results import Result, gather, load_results, save_results, this_machine
from rl_training.zoo.runs import Job, note_failure, same_settings, settings
from rl_training.zoo.table import make_table
from zoo_helpers import curve, manifest_with_curve, store_run

EVALUATIONS = {30_000: 400 / 3, 50_000: 474.99961, 100_000: 1499.7 / 3}


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    (only,) = manifest_with_curve(tmp_path).entries
    return only


def finish(entry: Entry, seed: int, folder: Path, mean_return: float) -> None:
    job = store_run(entry, seed, folder, EVALUATIONS, "finished")
    score = {"mean_return": mean_return, "env_steps": 100_000, "wall_seconds": 60.0, "settings": settings(entry.preset)}
    (job.run_dir / "score.json").write_text(json.dumps(score))


def write(folder: Path, runs: Path, seeds: int = 3) -> str:
    made = call(
        *("zoo", "table", folder / "tiny.yaml", "--seeds", seeds, "--output-dir", runs),
        *("--write", folder / "out", "--json"),
    )
    assert made.code == 0, made.err
    return str(made.json[0]["verdict"]).removesuffix(f" ({seeds} of 5 seeds)")


def report(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}


def test_a_report_from_saved_results_is_the_same(entry: Entry, tmp_path: Path) -> None:
    for seed, value in enumerate((480.0, 496.0, 500.0)):
        finish(entry, seed, tmp_path / "runs", value)
    assert write(tmp_path, tmp_path / "runs") == "pass"
    with_runs = report(tmp_path)
    assert {"cartpole.json", "tiny.md", "tiny.csv", "tiny.json", "tiny.png", "cartpole-v1.png"} == set(with_runs)
    assert write(tmp_path, tmp_path / "nowhere") == "pass"
    assert report(tmp_path) == with_runs
    shutil.rmtree(tmp_path / "out")
    assert write(tmp_path, tmp_path / "nowhere") == "0 of 3 seeds", "the saved results were used before"


def test_a_table_is_shown_from_kept_results_alone(entry: Entry, tmp_path: Path) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    write(tmp_path, tmp_path / "runs", seeds=1)
    command = ("zoo", "table", tmp_path / "tiny.yaml", "--seeds", 1, "--output-dir", tmp_path / "nowhere", "--json")
    (line,) = call(*command, "--results", tmp_path / "out" / "results").json
    assert line["scores"] == [500.0] and call(*command).json[0]["scores"] == []
    missing = call(*command, "--results", tmp_path / "no_such")
    assert missing.code == 2 and "no_such: no such directory" in missing.err and missing.err.count("\n") == 1


def test_seeds_may_come_from_several_machines(entry: Entry, tmp_path: Path) -> None:
    for seed in (0, 1):
        finish(entry, seed, tmp_path / "one", 500.0)
    finish(entry, 2, tmp_path / "other", 490.0)
    assert write(tmp_path, tmp_path / "one") == "2 of 3 seeds"
    assert write(tmp_path, tmp_path / "other") == "pass"
    assert json.loads((tmp_path / "out" / "tiny.json").read_text())[0]["scores"] == [500.0, 500.0, 490.0]
    few = gather([entry], 2, str(tmp_path / "nowhere"), tmp_path / "out" / "results")[entry.name]
    assert list(few) == [0, 1], "no more seeds than requested"


def test_the_result_with_more_steps_wins_and_a_finished_run_over_all(entry: Entry, tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def steps_and_score(runs: str) -> tuple[float, float | None]:
        result = gather([entry], 1, str(tmp_path / runs), kept)[entry.name][0]
        return float(result.curve.steps[-1]), result.score and result.score["mean_return"]

    store_run(entry, 0, tmp_path / "short", {20_000: 1.0})
    store_run(entry, 0, tmp_path / "longer", {20_000: 2.0, 40_000: 3.0})
    finish(entry, 0, tmp_path / "first", 490.0)
    finish(entry, 0, tmp_path / "second", 480.0)
    save_results(entry, gather([entry], 1, str(tmp_path / "longer"))[entry.name], kept)
    assert steps_and_score("nowhere") == steps_and_score("short") == steps_and_score("longer") == (40_000, None)
    shutil.rmtree(kept)
    save_results(entry, gather([entry], 1, str(tmp_path / "short"))[entry.name], kept)
    assert steps_and_score("longer") == (40_000, None) and steps_and_score("short") == (20_000, None)
    save_results(entry, gather([entry], 1, str(tmp_path / "first"))[entry.name], kept)
    assert steps_and_score("longer") == steps_and_score("nowhere") == (100_000, 490.0)
    assert steps_and_score("second") == (100_000, 480.0)


def test_evaluations_since_the_last_save_count_as_progress(entry: Entry, tmp_path: Path) -> None:
    job = store_run(entry, 0, tmp_path / "runs", {20_000: 1.0})
    save_results(entry, gather([entry], 1, str(tmp_path / "runs"))[entry.name], tmp_path / "kept")
    with (job.run_dir / "metrics.jsonl").open("w") as file:
        for step in (20_000, 60_000):
            print(json.dumps({"kind": "eval", "env_steps": step, "eval_mean_return": 2.0}), file=file)
    (result,) = gather([entry], 1, str(tmp_path / "runs"), tmp_path / "kept")[entry.name].values()
    assert (result.env_steps, result.curve.steps.tolist()) == (20_000, [20_000, 60_000])


def test_a_saved_result_wins_if_it_has_more_evaluations_or_a_score(entry: Entry, tmp_path: Path) -> None:
    store_run(entry, 0, tmp_path / "runs", {20_000: 1.0})
    save_results(entry, {0: Result(curve([20_000, 60_000], [2.0, 2.0]), 20_000)}, tmp_path / "longer_curve")
    score = {"mean_return": 480.0, "env_steps": 15_000.0, "wall_seconds": 1.0}
    save_results(entry, {0: Result(curve([15_000], [2.0]), 15_000, score)}, tmp_path / "scored")
    save_results(entry, {0: Result(curve([20_000], [2.0]), 40_000)}, tmp_path / "saved_later")
    for kept, steps in (("longer_curve", [20_000, 60_000]), ("scored", [15_000]), ("saved_later", [20_000])):
        (result,) = gather([entry], 1, str(tmp_path / "runs"), tmp_path / kept)[entry.name].values()
        assert result.curve.steps.tolist() == steps and result.curve.returns[0] == 2.0, kept
    only_evaluated = Result(curve([20_000, 60_000], [2.0, 2.0]), 20_000)
    assert not only_evaluated.done(60_000, 0.6), "a part is done when it was saved there"


def test_saved_seeds_that_were_not_requested_are_kept(entry: Entry, tmp_path: Path) -> None:
    for seed in range(3):
        finish(entry, seed, tmp_path / "runs", 500.0)
    kept = tmp_path / "out" / "results"
    for seeds in (3, 1):
        save_results(entry, gather([entry], seeds, str(tmp_path / "runs"))[entry.name], kept)
    assert write(tmp_path, tmp_path / "nowhere", seeds=3) == "pass"
    assert list(load_results(entry, kept)) == [0, 1, 2]


def test_a_page_is_not_overwritten_by_one_with_fewer_seeds(entry: Entry, tmp_path: Path) -> None:
    for seed in range(3):
        finish(entry, seed, tmp_path / "runs", 500.0)
    assert write(tmp_path, tmp_path / "runs") == "pass"
    shutil.rmtree(tmp_path / "out" / "results")
    before = report(tmp_path)
    command = ("zoo", "table", tmp_path / "tiny.yaml", "--seeds", 3, "--output-dir", tmp_path / "nowhere")
    refused = call(*command, "--write", tmp_path / "out")
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert (
        "tiny.json already has 3 seeds of ppo/cartpole, this table only 0" in refused.err and report(tmp_path) == before
    )
    assert call(*command, "--write", tmp_path / "elsewhere").code == 0

    page = tmp_path / "out" / "tiny.json"
    (line,) = json.loads(page.read_text())
    for other in (line | {"settings": line["settings"] | {"num_envs": 3}}, line | {"name": "ppo/gone"}):
        page.write_text(json.dumps([other]))
        assert write(tmp_path, tmp_path / "nowhere") == "0 of 3 seeds", "the preset or row no longer exists"


def test_a_page_of_some_seeds_or_with_other_rows_is_not_overwritten(entry: Entry, tmp_path: Path) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    assert write(tmp_path, tmp_path / "runs", seeds=3) == "1 of 3 seeds"
    manifest = load_manifest(str(tmp_path / "tiny.yaml"))
    with pytest.raises(ConfigError, match=r"tiny\.json already has 1 seed of ppo/cartpole, this table only 0"):
        write_report(manifest, [], [], {}, 3, tmp_path / "out")


@pytest.mark.parametrize("text", ["", "null", "[1]", "[{}]", '{"a": 1}', '[{"name": "ppo/cartpole", "seeds": "x"}]'])
def test_a_page_without_results_is_an_error_in_one_line(entry: Entry, tmp_path: Path, text: str) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tiny.json").write_text(text)
    command = ("zoo", "table", tmp_path / "tiny.yaml", "--seeds", 1, "--output-dir", tmp_path / "runs")
    refused = call(*command, "--write", tmp_path / "out")
    assert refused.code == 2 and refused.err.count("\n") == 1 and "tiny.json: not the results" in refused.err


def test_the_page_for_a_fraction_of_the_budgets_has_its_own_folder(entry: Entry, tmp_path: Path) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    assert write(tmp_path, tmp_path / "runs", seeds=1) == "pass"
    whole = {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    command = ("zoo", "table", tmp_path / "tiny.yaml", "--seeds", 1, "--output-dir", tmp_path / "runs")
    assert call(*command, "--write", tmp_path / "out", "--budget-fraction", 0.6).code == 0
    assert whole == {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    page = (tmp_path / "out" / "first-0.6" / "tiny.md").read_text()
    assert "--budget-fraction 0.6" in page and "the first 60% of each budget" in page
    assert "**last** checkpoint" not in page and "100 deterministic" not in page


def test_a_page_names_the_machines_of_the_runs(entry: Entry, tmp_path: Path) -> None:
    score = {"mean_return": 500.0, "env_steps": 100_000.0, "wall_seconds": 60.0}
    here, there = (Result(curve([], []), 100_000, score, "torch 2", machine) for machine in ("this", None))
    assert provenance({entry.name: {0: here, 1: here, 2: there}}).splitlines() == [
        "2 runs with torch 2, on this.",
        "1 run with torch 2, on an unrecorded machine.",
    ]
    store_run(entry, 0, tmp_path, {20_000: 1.0})
    assert gather([entry], 1, str(tmp_path))[entry.name][0].machine == this_machine() != ""


def test_a_seed_whose_score_was_kept_has_not_failed(entry: Entry, tmp_path: Path) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    assert write(tmp_path, tmp_path / "runs", seeds=2) == "1 of 2 seeds"
    note_failure(Job(entry, 0, str(tmp_path / "elsewhere")), "it died")
    assert write(tmp_path, tmp_path / "elsewhere", seeds=2) == "1 of 2 seeds"


def test_results_of_older_settings_do_not_count_and_give_way_to_new_ones(entry: Entry, tmp_path: Path) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    assert write(tmp_path, tmp_path / "runs", seeds=1) == "pass"
    path = tmp_path / "out" / "results" / "ppo" / "cartpole.json"
    mine = path.read_text()
    data = json.loads(mine)
    data["settings"]["num_envs"] += 1
    data["seeds"]["1"] = "of another layout"
    path.write_text(json.dumps(data))
    assert load_results(entry, path.parent.parent) == {}
    (tmp_path / "out" / "tiny.json").unlink()
    assert write(tmp_path, tmp_path / "nowhere", seeds=1) == "0 of 1 seeds" and path.exists(), "nothing to replace it"
    assert write(tmp_path, tmp_path / "runs", seeds=1) == "pass" and path.read_text() == mine


def test_a_failure_is_shown_each_time_and_not_saved(entry: Entry, tmp_path: Path) -> None:
    note_failure(store_run(entry, 0, tmp_path / "runs", {20_000: 70.0}), "loss became NaN")
    for _ in range(2):
        assert write(tmp_path, tmp_path / "runs", seeds=1) == "0 of 1 seeds; seed 0 failed: loss became NaN"
    assert write(tmp_path, tmp_path / "nowhere", seeds=1) == "0 of 1 seeds, 1 under way at 20,000 of 100,000 steps"
    note_failure(store_run(entry, 0, tmp_path / "shorter", {10_000: 70.0}), "it died")
    assert write(tmp_path, tmp_path / "shorter", seeds=1) == "0 of 1 seeds; seed 0 failed: it died"
    note_failure(Job(entry, 1, str(tmp_path / "shorter")), "never began")
    assert write(tmp_path, tmp_path / "shorter", seeds=2).endswith("seed 1 failed: never began")


def test_damage_in_one_run_does_not_prevent_a_table(entry: Entry, tmp_path: Path) -> None:
    finish(entry, 0, tmp_path / "runs", 500.0)
    bare = store_run(entry, 1, tmp_path / "runs", {20_000: 70.0}).run_dir
    (bare / "run.json").unlink()
    damaged = tmp_path / "runs" / "ppo-cartpole-seed0" / "checkpoints" / "step-000000100000"
    damaged.mkdir(parents=True)
    (damaged / "manifest.json").write_text("{")
    assert list_checkpoints(damaged.parent.parent, "resume") == [damaged]
    results = gather([entry], 2, str(tmp_path / "runs"))[entry.name]
    assert results[0].score is not None and results[0].versions is None
    assert results[1].env_steps == 0 and results[1].curve.steps.tolist() == [20_000]


def test_versions_are_those_of_the_newest_checkpoint(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(entry, 0, tmp_path, 500.0)
    manifests = {"new": SimpleNamespace(library_version="2", fingerprint={"torch": "9", "threads": 1}), "old": None}
    monkeypatch.setattr(zoo_results, "list_checkpoints", lambda *_: list(manifests))
    monkeypatch.setattr(zoo_results, "read_manifest", manifests.__getitem__)
    assert gather([entry], 1, str(tmp_path))[entry.name][0].versions == "rl_training 2, torch 9"


def test_saved_results_are_exact(entry: Entry, tmp_path: Path) -> None:
    score = {"mean_return": 1498 / 3, "env_steps": 99_996.0, "wall_seconds": 61.5}
    whole = Result(curve([10_000, 99_996], [28 / 3, 500.0]), 99_996, score, "torch 2", "a processor")
    scored_only = Result(curve([], []), 99_996, score)
    path = save_results(entry, {3: Result(curve([10_000], [8.0]), 12_000), 0: whole, 4: scored_only}, tmp_path)
    assert path == tmp_path / "ppo" / "cartpole.json" and len(path.read_text().splitlines()) == 8, "a line per seed"
    read = load_results(entry, tmp_path)
    assert list(read) == [0, 3, 4] and read[4].score == score and read[4].curve.steps.size == 0
    assert (read[0].score, read[0].env_steps) == (score, 99_996)
    assert (read[0].versions, read[0].machine) == ("torch 2", "a processor")
    for name in ("steps", "returns", "seconds"):
        np.testing.assert_array_equal(getattr(read[0].curve, name), getattr(whole.curve, name))
    assert read[3].score is None and read[3].env_steps == 12_000
    assert (
        save_results(entry, {0: Result(curve([], []))}, tmp_path / "none") is None and not (tmp_path / "none").exists()
    )


def test_a_fraction_is_done_when_the_run_has_reached_it_and_a_full_run_when_it_has_a_score() -> None:
    part = Result(curve([10_000], [8.0]), 12_000)
    assert part.done(12_000, 0.1) and not part.done(12_001, 0.1) and not part.done(12_000, 1.0)
    scored = Result(curve([10_000], [8.0]), 11_990, {"mean_return": 8.0, "env_steps": 11_990, "wall_seconds": 1.0})
    assert scored.done(12_000, 1.0) and scored.done(12_000, 0.999)


def test_a_run_that_has_not_reached_the_fraction_has_no_score(entry: Entry, tmp_path: Path) -> None:
    store_run(entry, 0, tmp_path, {20_000: 50.0, 40_000: 60.0})
    for fraction, verdict in ((0.4, "at 40% of the budget"), (0.5, "0 of 1 seeds, 1 under way")):
        (line,) = make_table([entry], gather([entry], 1, str(tmp_path)), 1, fraction)
        assert line["verdict"].startswith(verdict)
    (line,) = make_table([entry], gather([entry], 1, str(tmp_path)), 1, 0.1)
    assert line["verdict"] == "0 of 1 seeds", "no evaluation was made before"


def test_a_plot_ends_with_the_fraction_and_leaves_out_seeds_without_a_run(entry: Entry, tmp_path: Path) -> None:
    store_run(entry, 0, tmp_path, {20_000: 50.0, 40_000: 60.0})
    note_failure(Job(entry, 1, str(tmp_path)), "never began")
    results = gather([entry], 2, str(tmp_path))[entry.name]
    assert entry.published is not None and len(results) == 2
    assert [each.steps.tolist() for each in drawn_curves(entry, results, 0.3)] == [[20_000]]
    assert curves_of(entry, results) == [], "unfinished runs are not part of a band"


BAD = (
    ["", "[1]", "{}", "null", '{"settings": SETTINGS, "seeds": {"0": 3}}']
    + [
        f'{{"settings": SETTINGS, "seeds": {{"0": {{"env_steps": 1, "versions": null, {each}}}}}}}'
        for each in (
            '"score": null, "curve": [[1, 2], [3, 4], [5, 6]]',
            '"score": null, "curve": [[1, 2, 3], [4, 5]]',
            '"score": {"mean_return": 1}, "curve": []',
            '"score": null, "curve": [["a", 2, 3]]',
            '"score": null, "curve": [[1e999, 2, 3]]',
            '"score": null, "curve": [[1, 2, true]]',
            '"score": {"mean_return": 1e999, "env_steps": 1, "wall_seconds": 1}, "curve": []',
            f'"score": {{"mean_return": 1{"0" * 400}, "env_steps": 1, "wall_seconds": 1}}, "curve": []',
        )
    ]
    + ['{"settings": SETTINGS, "seeds": [1]}', '{"settings": SETTINGS, "seeds": 1e999}']
)


@pytest.mark.parametrize("text", BAD)
def test_a_file_without_results_is_an_error_in_one_line(entry: Entry, tmp_path: Path, text: str) -> None:
    path = tmp_path / "results" / "ppo" / "cartpole.json"
    path.parent.mkdir(parents=True)
    path.write_text(text.replace("SETTINGS", json.dumps(settings(entry.preset))))
    with pytest.raises(ConfigError, match=r"cartpole\.json: not the results of a benchmark"):
        load_results(entry, tmp_path / "results")


def test_settings_that_name_a_file_are_not_read(entry: Entry) -> None:
    """Stored settings are a mapping; a text in a stranger's file must not make us open what it names."""
    assert same_settings(settings(entry.preset), entry.preset)
    assert not same_settings("ppo/cartpole", entry.preset)  # type: ignore[arg-type]


def test_bands_take_kept_results_too(entry: Entry, tmp_path: Path) -> None:
    for seed in range(3):
        finish(entry, seed, tmp_path / "runs", 500.0)
    write(tmp_path, tmp_path / "runs")
    command = ("zoo", "bands", tmp_path / "tiny.yaml", "--seeds", 3, "--write", tmp_path / "bands", "--json")
    assert call(*command, "--output-dir", tmp_path / "nowhere").json == []
    kept = ("--results", tmp_path / "out" / "results")
    made = call(*command, "--output-dir", tmp_path / "nowhere", *kept).json
    from_results = Path(made[0]).read_bytes()
    assert call(*command, "--output-dir", tmp_path / "runs").json == made
    assert Path(made[0]).read_bytes() == from_results
    score = {"mean_return": 500.0, "env_steps": 100_000.0, "wall_seconds": 60.0}
    save_results(entry, {seed: Result(curve([], []), 100_000, score) for seed in range(3)}, tmp_path / "scores_only")
    assert call(*command, "--output-dir", tmp_path / "nowhere", "--results", tmp_path / "scores_only").json == []
    missing = call(*command, "--results", tmp_path / "no_such")
    assert missing.code == 2 and "no_such: no such directory" in missing.err and missing.err.count("\n") == 1
