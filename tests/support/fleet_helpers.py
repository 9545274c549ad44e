"""Runs with actors, and what of them must equal a run without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.runtime.workflows import TrainResult, train
from rl_training.storage.checkpoints import latest_checkpoint
from rl_training.storage.state_tree import state_hash
from run_cases import Case, different_parts, metric_lines, saved_state

FLEET_FIELDS = {"actors", "queue", "lag_mean", "lag_max"}


def run(case: Case, folder: Path, callback: Any = None, **runtime: Any) -> TrainResult:
    """A run of the case with these settings of the runtime."""
    config = case.config(folder, **{f"runtime.{name}": value for name, value in runtime.items()})
    return train(config, env=case.env, show=False, callback=callback)


def plain_lines(run_dir: Path) -> list[dict[str, Any]]:
    """The metric lines without what only runs with actors have."""
    return [
        {name: value for name, value in line.items() if name not in FLEET_FIELDS and not name.startswith("env_steps_")}
        for line in metric_lines(run_dir)
    ]


def plain_state(run_dir: Path) -> dict[str, Any]:
    state = saved_state(latest_checkpoint(run_dir).path)
    state["loop"] = {name: value for name, value in state["loop"].items() if name != "fleet"}
    return state


def assert_same_but_for_the_fleet(left: Path, right: Path) -> None:
    """Equal in every bit of the last checkpoint and in every metric, except for the account of the fleet."""
    for ours, theirs in zip(plain_lines(left), plain_lines(right), strict=True):
        assert ours == theirs
    states = [plain_state(run_dir) for run_dir in (left, right)]
    assert state_hash(states[0]) == state_hash(states[1]), list(different_parts(*states))
