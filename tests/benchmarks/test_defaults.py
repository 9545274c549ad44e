"""The benchmark of defaults: what is missing, who is ahead, and that the page shows the stored results."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def benchmark_of_defaults(project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("defaults", project_root / "benchmarks" / "defaults.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "defaults", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "PAGE", tmp_path / "defaults.md")
    return module


def store(module: ModuleType, side: str, scores: list[float]) -> None:
    row = module.ROWS[0]
    for seed, score in enumerate(scores):
        path = row.path(side, row.budgets[0], seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"mean": score}), encoding="utf-8")


VERDICTS = {
    "ahead": ([9.0, 10.0, 11.0], [1.0, 2.0, 3.0], "ahead"),
    "behind": ([1.0, 2.0, 3.0], [9.0, 10.0, 11.0], "behind"),
    "one side varies": ([1.0, 2.0, 3.0], [0.0, 10.0, 11.0], "within the spread, lower"),
    "higher": ([4.0, 4.0, 4.0], [0.0, 2.0, 4.0], "within the spread, higher"),
    "the same": ([4.0, 4.0, 4.0], [4.0, 4.0, 4.0], "equal"),
    "two seeds": ([4.0, 4.0], [1.0, 1.0, 1.0], "not finished"),
    "no peer": ([4.0, 4.0, 4.0], [], "not finished"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_a_difference_counts_beyond_the_spread_of_the_seeds(case: str, benchmark_of_defaults: ModuleType) -> None:
    ours, peer, expected = VERDICTS[case]
    assert benchmark_of_defaults.verdict(ours, peer) == expected


def test_the_page_counts_and_shows_the_stored_results(benchmark_of_defaults: ModuleType) -> None:
    module = benchmark_of_defaults
    store(module, "ours", [9.0, 10.0, 11.0])
    store(module, "peer", [1.0, 2.0, 3.0])
    text = module.page()
    row = module.ROWS[0]
    assert (
        f"| {row.shown_env} | {row.algo} | {row.budgets[0]:,} | 10.00 (9.00 to 11.00) | 2.00 (1.00 to 3.00) | ahead |"
        in text
    )
    comparisons = 2 * len(module.ROWS)
    counted = " ".join(text.split())
    assert f"Of {comparisons} comparisons, rl_training has the higher mean in 1, in 1 of them by more" in counted
    assert (
        f"the lower mean in 0, in 0 of them by more than the spread. 0 are equal, and {comparisons - 1} are" in counted
    )
    assert text.count("not finished |") == comparisons - 1


def test_only_what_is_missing_is_trained(benchmark_of_defaults: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module, calls = benchmark_of_defaults, []
    row = module.ROWS[0]
    assert row.algo == "dqn", "exploration depends on the length of the run, so each budget is a run"
    store(module, "peer", [1.0])

    class Done:
        returncode, stdout = 0, json.dumps({"budget": row.budgets[1], "returns": [3.0, 5.0], "seconds": 1.0})

    monkeypatch.setattr(module.subprocess, "run", lambda command, **_: calls.append(command[4:]) or Done)
    monkeypatch.setattr(module, "version", lambda name: "1")
    module.run(row, "peer", 0)
    module.run(row, "peer", 0)
    assert calls == [[row.env, row.algo, "0", str(row.budgets[1])]]
    assert module.means(row, "peer", row.budgets[1]) == [4.0]


def test_the_committed_page_shows_the_committed_results(project_root: Path, benchmark_of_defaults: ModuleType) -> None:
    module = benchmark_of_defaults
    module.RESULTS = project_root / "docs" / "benchmarks" / "results" / "defaults"
    page = (project_root / "docs" / "benchmarks" / "defaults.md").read_text(encoding="utf-8")
    assert page == module.page(), "run: python benchmarks/defaults.py --table"


def test_every_row_is_an_algorithm_and_names_are_distinct(benchmark_of_defaults: ModuleType) -> None:
    from rl_training.config.algorithm_table import ALGORITHMS

    rows = benchmark_of_defaults.ROWS
    assert len({row.name for row in rows}) == len(rows) and all(row.algo in ALGORITHMS for row in rows)
    assert len({row.env for row in rows}) >= 10
