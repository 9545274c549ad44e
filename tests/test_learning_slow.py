"""One seed of each fast preset reaches the floor of its row, by the rule of `scripts/check_learning.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FAST_PRESETS = (
    "ppo/cartpole",
    "a2c/cartpole",
    "trpo/cartpole",
    "ppg/cartpole",
    "dqn/cartpole",
    "sac/pendulum",
    "td3/pendulum",
    "ddpg/pendulum",
)


@pytest.mark.slow
@pytest.mark.parametrize("preset", FAST_PRESETS)
def test_one_seed_reaches_the_floor(preset: str, tmp_path: Path, project_root: Path) -> None:
    spec = importlib.util.spec_from_file_location("check_learning", project_root / "scripts" / "check_learning.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    score = script.train_and_score(preset, 0, str(tmp_path))

    assert score["episodes"] == script.EPISODES == 100
    assert score["mean_return"] >= script.floor_of(preset)
