"""`rl-training diff`: one changed key is the only line, and a resumed twin differs in nothing."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli_helpers import call, tiny_config
from rl_training import ExperimentManager, diff_runs
from rl_training.analysis.run_diff import RunDiff
from stored_runs import SESSION, store


def names(diff: RunDiff) -> list[str]:
    return [each.name for each in (*diff.settings, *diff.versions, *diff.machine)]


def test_one_changed_key_is_the_only_line(tmp_path: Path) -> None:
    first = store(tmp_path, {100: 1.0})
    second = store(tmp_path, {100: 1.0}, gamma=0.9)
    diff = diff_runs(first, second)
    (line,) = diff.settings
    assert (line.name, line.first, line.second) == ("algo_kwargs.gamma", 0.99, 0.9)
    assert names(diff) == ["algo_kwargs.gamma"] and diff.differ_from is None and not diff.is_equal
    outcome = call("diff", first, second)
    assert outcome.code == 1 and "algo_kwargs.gamma" in outcome.out and "0.9" in outcome.out


def test_a_run_and_its_resumed_twin_differ_in_nothing(tmp_path: Path) -> None:
    settings = tiny_config("ppo", eval_every=32, checkpoint_every=64, total_timesteps=128)
    whole = ExperimentManager(tmp_path / "whole").run(settings, show=False)
    stopping = ExperimentManager(tmp_path / "twin")
    twin = stopping.run(settings, show=False, callback=lambda progress: progress.env_steps < 64)
    assert twin.status == "interrupted"
    exact = next(path for path in twin.checkpoints() if path.name == "step-000000000064")
    from rl_training import resume

    resume(exact, show=False)
    assert len(twin.sessions) == 2
    diff = diff_runs(whole.path, twin.path)
    assert diff.is_equal and names(diff) == [] and diff.common_evaluations >= 4
    outcome = call("diff", whole.path, twin.path)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "settings, versions and machine: the same" and "the same at all" in lines[1]


def test_two_seeds_part_where_their_errors_say(tmp_path: Path) -> None:
    scores = {100: 10.0, 200: 20.0, 300: 30.0, 400: 40.0}
    first = store(tmp_path, scores, seed=0, std=3.0, episodes=10)
    # The standard error of the difference is sqrt(2) * 3 / sqrt(9): about 1.41.
    second = store(tmp_path, {100: 10.0, 200: 22.0, 300: 32.9, 400: 30.0}, seed=1, std=3.0, episodes=10)
    diff = diff_runs(first, second)
    assert diff.differ_from is not None and diff.differ_from.env_steps == 200
    assert diff.part_at is not None and diff.part_at.env_steps == 300
    assert diff.part_at.standard_error == pytest.approx(math.sqrt(2.0))
    assert "differ from step 200 on; at step 300" in diff.curves
    assert names(diff) == ["seed"]


def test_curves_within_their_errors_never_part(tmp_path: Path) -> None:
    first = store(tmp_path, {100: 10.0, 200: 20.0}, std=30.0)
    second = store(tmp_path, {100: 11.0, 200: 22.0}, std=30.0)
    diff = diff_runs(first, second)
    assert diff.part_at is None and diff.differ_from is not None and not diff.is_equal
    assert "never" in diff.curves
    summary = call("diff", first, second, "--json").json
    assert summary["part_at"] is None and summary["differ_from"]["env_steps"] == 100 and summary["equal"] is False


def test_without_spread_any_difference_counts(tmp_path: Path) -> None:
    first = store(tmp_path, {100: 500.0}, std=0.0)
    second = store(tmp_path, {100: 499.0}, std=0.0)
    part = diff_runs(first, second).part_at
    assert part is not None and part.standard_error == 0.0


def test_only_common_steps_are_compared(tmp_path: Path) -> None:
    first, second = store(tmp_path, {100: 1.0}), store(tmp_path, {150: 1.0})
    assert diff_runs(first, second).curves == "no common evaluation"
    assert diff_runs(first, first).curves == "the same at the only common evaluation"


def test_the_result_of_a_run_is_compared_with_a_result(tmp_path: Path) -> None:
    first = store(tmp_path, [(100, 1.0), (100, 9.0)])
    second = store(tmp_path, [(100, 1.0), (100, 9.0)])
    assert diff_runs(first, second).common_evaluations == 2 and diff_runs(first, second).differ_from is None


def changed(**fields: Any) -> dict[str, Any]:
    return SESSION | fields


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([changed(versions=SESSION["versions"] | {"torch": "2.8.0"})], ["torch"]),
        ([changed(host="two", processor="another")], ["host", "processor"]),
        ([changed(git={"commit": "b" * 40, "dirty": False})], ["git commit"]),
        ([changed(git={"commit": "a" * 40, "dirty": True})], ["git commit"]),
        ([changed(versions={"python": "3.11.7"})], []),  # recorded by one of them only
        ([{}], []),
        ([], []),
        ([SESSION, changed(command="rl-training resume x", from_step=50)], []),
        ([SESSION, changed(host="two")], ["host"]),
    ],
)
def test_versions_and_machines_are_compared_where_both_recorded_them(
    sessions: list[dict[str, Any]], expected: list[str], tmp_path: Path
) -> None:
    first, second = store(tmp_path, {100: 1.0}), store(tmp_path, {100: 1.0}, sessions=sessions)
    diff = diff_runs(first, second)
    assert names(diff) == expected and diff.is_equal == (expected == [])


def test_a_machine_that_changed_on_the_way_is_shown(tmp_path: Path) -> None:
    first = store(tmp_path, {100: 1.0})
    second = store(tmp_path, {100: 1.0}, sessions=[changed(host="two"), SESSION])
    (line,) = diff_runs(first, second).machine
    assert (line.first, line.second) == ("one", "two, then one")


def test_place_and_name_of_a_run_do_not_count(tmp_path: Path) -> None:
    first = store(tmp_path / "a", {100: 1.0})
    shutil.copytree(first, tmp_path / "b" / "moved")
    assert diff_runs(first, tmp_path / "b" / "moved").is_equal


def test_settings_that_only_one_algorithm_has_are_absent_in_the_other(tmp_path: Path) -> None:
    first, second = store(tmp_path, {}), store(tmp_path, {}, algo="dqn")
    lines = {each.name: (each.first, each.second) for each in diff_runs(first, second).settings}
    assert lines["algo"] == ("ppo", "dqn") and lines["algo_kwargs.gae_lambda"][1] == "absent"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [(["ppo-seed0", "nothing"], 5, "no such run"), (["ppo-seed0", "*"], 2, "names 2 runs")],
)
def test_bad_names_are_one_line(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    store(tmp_path, {}), store(tmp_path, {})
    outcome = call("diff", *words, "--output-dir", tmp_path)
    assert outcome.code == code and outcome.err.count("\n") == 1 and text in outcome.err


def test_values_of_a_stranger_are_printed_clean(tmp_path: Path) -> None:
    first = store(tmp_path, {100: 1.0}, env_kwargs={"x\x1b[3J": "\x1b[2Jred\n"})
    second = store(tmp_path, {100: 1.0}, sessions=[changed(host="\x1b]0;title\x07evil")])
    out = call("diff", first, second).out
    assert "\x1b" not in out and "\x07" not in out and "evil" in out and "red" in out
