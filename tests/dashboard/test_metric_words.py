"""Every number that training writes has a title in words on the page, and a section."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training import train
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.config.loading import load_config
from rl_training.dashboard.metric_names import HIDDEN, METRICS, describe
from rl_training.telemetry.metric_lines import read_metrics
from run_cases import CASES

FOR_MACHINES = {"kind", "env_steps", *HIDDEN}


def numbers_of(run: Path) -> set[str]:
    return {name for line in read_metrics(run) for name in line} - FOR_MACHINES


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_number_of_an_algorithm_has_words(algorithm: str, tmp_path: Path) -> None:
    found = set()
    for number, case in enumerate(case for case in CASES.values() if case.algo == algorithm):
        config = case.config(tmp_path / str(number), compile="off", threads=1)
        found |= numbers_of(Path(train(config, env=case.env, show=False).run_dir))
    assert len(found) > 8
    assert found - set(METRICS) == set()


@pytest.mark.parametrize("preset", ["impala/cartpole", "apex_dqn/cartpole"])
def test_every_number_about_actors_has_words(preset: str, tmp_path: Path) -> None:
    settings = {"total_timesteps": 1500, "eval_episodes": 1, "log_every": 100, "output_dir": str(tmp_path)}
    actors = {"runtime": {"actors": 2, "backend": "inline"}, "compile": "off", "threads": 1}
    found = numbers_of(Path(train(load_config(preset, settings | actors), show=False).run_dir))
    fleet = {name for name in found if describe(name)["section"] == "fleet"}
    assert fleet >= {"lag_mean", "actors_alive", "learner_waits", "env_steps_lost"} and found - set(METRICS) == set()
    assert all(describe(name)["unit"] for name in fleet)
