"""Comparisons: the same numbers as the plots and the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.analysis.evaluations import Evaluation, pool_evaluations
from rl_training.analysis.run_comparison import compare_runs
from rl_training.analysis.run_diff import diff_runs
from rl_training.dashboard.group_curves import compare_groups, read_groups
from rl_training.dashboard.run_shelf import RunShelf
from stored_runs import store


def compare(folder: Path, *names: str, metric: str = "eval_mean_return") -> dict[str, Any]:
    shelf = RunShelf(output_dir=folder)
    answer, streams = read_groups(shelf, names or tuple(shelf.names), metric, budget=1e9)
    assert answer["read"] == answer["of"]
    return compare_groups(answer, streams)


def test_seeds_are_one_line_with_the_band_of_their_middle_half(tmp_path: Path) -> None:
    for seed, end in enumerate((10.0, 20.0, 60.0)):
        store(tmp_path, {100: 0.0, 200: end}, seed=seed)
    store(tmp_path, {100: 5.0, 200: 7.0}, seed=9, gamma=0.5, name="other")
    answer = compare(tmp_path, "ppo-seed0", "ppo-seed1", "ppo-seed2", "other")
    labels = [(group["label"], group["seeds"]) for group in answer["groups"]]
    assert labels == [("gamma 0.99", 3), ("gamma 0.5", 1)]
    (panel,) = answer["panels"]
    line, alone = panel["lines"]
    assert (line["low"][-1], line["middle"][-1], line["high"][-1]) == (15, 20, 40)
    assert (line["x"][0], line["x"][-1]) == (100, 200) and len(line["seeds"]) == 3
    assert "low" not in alone and alone["middle"][-1] == 7, "one seed has no band"
    assert answer["settings"] == [{"key": "algo_kwargs.gamma", "values": ["0.99", "0.5"]}]


def test_each_env_has_its_panel_and_any_metric_its_curve(tmp_path: Path) -> None:
    store(tmp_path, {100: 1.0}, losses={50: 0.5, 100: 0.25})
    store(tmp_path, {100: 2.0}, seed=1, env_id="Acrobot-v1", name="acro")
    assert {panel["env"] for panel in compare(tmp_path)["panels"]} == {"CartPole-v1", "Acrobot-v1"}
    loss = compare(tmp_path, metric="loss")
    assert [len(panel["lines"]) for panel in sorted(loss["panels"], key=lambda panel: panel["env"])] == [0, 1]
    assert {each["name"] for each in loss["metrics"]} >= {"loss", "eval_mean_return"}


def test_two_runs_part_where_diff_says(tmp_path: Path) -> None:
    first = store(tmp_path, {100: 1.0, 200: 1.5, 300: 9.0}, name="a")
    second = store(tmp_path, {100: 1.0, 200: 1.6, 300: 1.0}, name="b", gamma=0.5)
    apart = compare(tmp_path, "a", "b")["apart"]
    diff = diff_runs(first, second)
    assert diff.part_at is not None and apart["at"] == diff.part_at.env_steps == 300
    assert apart["sentence"] == diff.curves
    assert apart["diff"] == {"versions": [], "machine": []}
    assert "at least 3 seeds" in apart["verdict"]["text"]


def test_two_groups_have_the_verdict_of_the_command_and_part_by_their_seeds(tmp_path: Path) -> None:
    for seed in range(3):
        store(tmp_path, {100: 1.0 + seed, 200: 10.0 + seed, 300: 10.0 + seed}, seed=seed)
        store(tmp_path, {100: 1.0 + seed, 200: 11.0 + seed, 300: 90.0 + seed}, seed=seed, gamma=0.5, name=f"b{seed}")
    apart = compare(tmp_path)["apart"]
    expected = compare_runs("gamma=0.5", "gamma=0.99", output_dir=tmp_path)
    found = {each["group"]: each["iqm"] for each in apart["verdict"]["scores"]}
    assert found == {"gamma 0.5": expected.scores[0].iqm, "gamma 0.99": expected.scores[1].iqm}
    assert apart["verdict"]["text"] == "gamma 0.5 scores higher"
    assert apart["at"] == 300 and "of their seeds" in apart["sentence"] and apart["diff"] is None


def test_pooled_evaluations_are_those_that_all_seeds_have() -> None:
    def of(*means: float) -> list[Evaluation]:
        return [Evaluation(100 * (i + 1), mean, 1.0, 10) for i, mean in enumerate(means)]

    assert pool_evaluations([of(1.0, 2.0)]) == of(1.0, 2.0)
    pooled = pool_evaluations([of(1.0, 2.0, 3.0), of(3.0, 6.0)])
    assert [(each.env_steps, each.mean, each.episodes) for each in pooled] == [(100, 2.0, 2), (200, 4.0, 2)]
    assert [each.std for each in pooled] == [1.0, 2.0]
    assert pooled[1].standard_error == pytest.approx(np.std([2.0, 6.0], ddof=1) / np.sqrt(2))
    assert pool_evaluations([]) == []


def test_a_damaged_run_is_left_out_with_a_word(tmp_path: Path) -> None:
    store(tmp_path, {100: 1.0})
    bad = store(tmp_path, {100: 1.0}, seed=1)
    (bad / "config.yaml").write_text("algo: nothing\n")
    answer = compare(tmp_path, "ppo-seed0", "ppo-seed1", "gone")
    assert len(answer["groups"]) == 1 and answer["apart"] is None
    assert any("ppo-seed1 is left out" in note for note in answer["notes"])
    assert any("gone: no such run" in note for note in answer["notes"])


def test_a_repeated_seed_counts_once(tmp_path: Path) -> None:
    store(tmp_path, {100: 1.0}, name="old")
    store(tmp_path, {100: 2.0}, name="new")
    answer = compare(tmp_path)
    assert answer["groups"][0]["seeds"] == 1 and any("old is left out" in note for note in answer["notes"])
