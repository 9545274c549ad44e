"""Rows of an agent with several policies (TD7): which one was scored, and what the others score."""

from __future__ import annotations

import json
from pathlib import Path

from rl_training.zoo.manifest import load_manifest
from rl_training.zoo.report import policies_text
from rl_training.zoo.results import Result, gather, load_results, save_results
from rl_training.zoo.runs import Job, settings, train_and_score
from zoo_helpers import curve, store_run, write_manifest

PRESET = {
    "algo": "td7",
    "env_id": "Pendulum-v1",
    "env_kwargs": {"max_episode_steps": 8},
    "total_timesteps": 64,
    "compile": "off",
    "model": {"hidden_sizes": [8]},
    "algo_kwargs": {"learning_starts": 16, "batch_size": 8, "embedding_size": 4, "actor_learning_rate": 0.05},
}


def test_a_seed_of_td7_is_scored_with_both_policies(tmp_path: Path) -> None:
    (entry,) = load_manifest(write_manifest(tmp_path, {"pendulum": PRESET})).entries
    job = Job(entry, 0, str(tmp_path / "runs"))
    train_and_score(job, lambda env_steps: True)
    score = json.loads((job.run_dir / "score.json").read_text())
    kept, last = score["policies"]["kept"], score["policies"]["last"]
    assert score["mean_return"] == kept != last
    assert gather([entry], 1, str(tmp_path / "runs"))[entry.name][0].policies == {"kept": kept, "last": last}


def test_a_report_says_which_policy_it_scores_and_keeps_the_scores_of_both(tmp_path: Path) -> None:
    last_scored = PRESET | {"algo_kwargs": {**PRESET["algo_kwargs"], "evaluated_policy": "last"}}  # type: ignore[dict-item]
    entries = load_manifest(write_manifest(tmp_path, {"kept": PRESET, "last": last_scored})).entries
    scores = {"mean_return": -900.0, "env_steps": 64.0, "wall_seconds": 1.0}
    results = {
        seed: Result(curve([64.0], [-900.0]), 64, scores, policies={"kept": -900.0 - seed, "last": -1234.5})
        for seed in range(2)
    }
    by_row = {entry.name: results for entry in entries}
    kept, last = policies_text(entries, by_row).splitlines()[2:]
    assert kept.endswith("kept**: kept policy; mean of 2 seeds: kept -900.5, last -1,234.5")
    assert last.endswith("last**: last policy; mean of 2 seeds: kept -900.5, last -1,234.5")
    save_results(entries[0], results, tmp_path / "saved")
    assert [each.policies for each in load_results(entries[0], tmp_path / "saved").values()] == [
        {"kept": -900.0, "last": -1234.5},
        {"kept": -901.0, "last": -1234.5},
    ]


def test_scores_without_policies_leave_no_trace_in_a_report_and_an_edited_one_is_dropped(tmp_path: Path) -> None:
    (entry,) = load_manifest(write_manifest(tmp_path, {"pendulum": PRESET})).entries
    job = store_run(entry, 0, tmp_path / "runs", {64: -900.0}, "finished")
    score = {"mean_return": -900.0, "env_steps": 64, "wall_seconds": 1.0, "settings": settings(entry.preset)}
    for policies in (None, ["kept"], {"kept": "high"}):
        (job.run_dir / "score.json").write_text(json.dumps(score | {"policies": policies}))
        by_row = gather([entry], 1, str(tmp_path / "runs"))
        assert by_row[entry.name][0].policies == {} and policies_text([entry], by_row) == ""
    saved = save_results(entry, by_row[entry.name], tmp_path / "saved")
    assert saved is not None and "policies" not in json.loads(saved.read_text())["seeds"]["0"]
