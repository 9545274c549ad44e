"""Checkpoints of every released schema load; those of a later schema are refused with the version they need."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoint_helpers import edit_manifest, refusal
from golden import FOLDER, NAMES, RUNS, check_golden
from rl_training.runtime.agent import stored_config
from rl_training.storage.checkpoints import SCHEMA, latest_checkpoint

LARGEST = 100_000  # bytes of a recorded run


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_a_recorded_run_loads_acts_and_continues_training(run: Path, tmp_path: Path) -> None:
    check_golden(run, tmp_path)
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) <= LARGEST


def test_a_recorded_run_keeps_the_importance_exponent_that_was_the_default() -> None:
    for run in (FOLDER / "schema-1" / "dqn", FOLDER / "schema-1" / "sac"):
        stored = stored_config(latest_checkpoint(run)).algo_kwargs
        assert (stored.importance_exponent.start, stored.importance_exponent.end) == (0.4, 0.4)  # type: ignore[attr-defined]
        assert type(stored)().importance_exponent.end == 1.0  # type: ignore[attr-defined]


def test_every_schema_up_to_this_one_is_recorded() -> None:
    expected = [f"schema-{number}" for number in range(1, SCHEMA + 1)]
    assert sorted(path.name for path in FOLDER.iterdir()) == expected, "run scripts/record_golden_checkpoints.py"


def test_a_later_schema_is_refused_with_the_version_it_needs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUNS[0], run)
    newest = latest_checkpoint(run).path
    edit_manifest(newest, schema=SCHEMA + 1, library_version="9.8.7")
    message = refusal(newest)
    assert "9.8.7" in message and f"schema {SCHEMA + 1}" in message and "upgrade rl_training" in message
