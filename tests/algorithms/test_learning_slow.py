"""One seed of each fast preset reaches the floor of its row, by the rule of the zoo."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.config.evaluation_protocol import SCORE_EPISODES
from rl_training.zoo.manifest import load_manifest
from rl_training.zoo.runs import Job, stored_score, train_and_score

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
def test_one_seed_reaches_the_floor(preset: str, tmp_path: Path) -> None:
    (entry,) = load_manifest("classic").select([preset])
    job = Job(entry, 0, str(tmp_path))

    train_and_score(job)

    score = stored_score(job)
    assert score is not None and score["episodes"] == SCORE_EPISODES == 100
    assert entry.row.floor is not None and score["mean_return"] >= entry.row.floor
