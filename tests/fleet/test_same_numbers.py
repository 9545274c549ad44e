"""Actors change no number: one actor equals the plain loop, processes equal `inline`, for every algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet_helpers import assert_same_but_for_the_fleet, run
from rl_training.config.algorithm_table import ALGORITHMS
from run_cases import CASES, Case, assert_same_run, metric_lines


def case_of(algo: str, num_envs: int = 4) -> Case:
    """The case of an algorithm that has the most state: the last one, which normalizes, on four envs."""
    mine = [case for case in CASES.values() if case.algo == algo and "ALE/" not in case.env_id]
    normalized = [case for case in mine if case.model.get("normalize_observations")]
    options = {key: value for key, value in normalized[-1].options.items() if key != "eval_every"}
    return replace(normalized[-1], num_envs=num_envs, steps=96, options=options)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_one_actor_in_lockstep_equals_the_plain_loop(algo: str, tmp_path: Path) -> None:
    case = case_of(algo, num_envs=2)
    plain = run(case, tmp_path / "plain")
    actor = run(case, tmp_path / "actor", backend="process", mode="lockstep")
    assert_same_but_for_the_fleet(plain.run_dir, actor.run_dir)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_actor_processes_in_lockstep_equal_actors_in_one_process(algo: str, tmp_path: Path) -> None:
    case = case_of(algo)
    inline = run(case, tmp_path / "inline", actors=2, backend="inline", mode="lockstep")
    processes = run(case, tmp_path / "process", actors=2, backend="process", mode="lockstep")
    assert_same_run(inline.run_dir, processes.run_dir)
    lags = {line["lag_max"] for line in metric_lines(inline.run_dir) if "lag_max" in line}
    assert lags == {1 if algo == "a3c" else 0}  # the second of two pushes


@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.parametrize("algo", [row.name for row in ALGORITHMS.values() if "pipelined" in row.modes])
def test_pipelined_processes_equal_pipelined_actors_in_one_process(algo: str, actors: int, tmp_path: Path) -> None:
    case = replace(case_of(algo), steps=240)
    inline = run(case, tmp_path / "inline", actors=actors, backend="inline", mode="pipelined")
    processes = run(case, tmp_path / "process", actors=actors, backend="process", mode="pipelined")
    assert_same_run(inline.run_dir, processes.run_dir)


# One algorithm of each family, with what only it sends: memory, noise, several actions per step.
ON_RAY = ["ppo", "recurrent_ppo", "dqn", "ddpg"]
FURTHER = [("impala", 2), ("impala", 4), ("appo", 1), ("appo", 4)]


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def on_ray(case: Case, folder: Path, address: str, actors: int, mode: str) -> Path:
    """A run on the cluster of these tests, of whose CPUs an actor takes only a part."""
    return run(case, folder, actors=actors, mode=mode, backend="ray", address=address, cpus_per_actor=0.25).run_dir


@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize(
    "algo", [*ON_RAY, *(pytest.param(a, marks=pytest.mark.slow) for a in ALGORITHMS if a not in ON_RAY)]
)
def test_actors_on_ray_in_lockstep_equal_actors_in_one_process(algo: str, ray_address: str, tmp_path: Path) -> None:
    case = case_of(algo)
    inline = run(case, tmp_path / "inline", actors=2, backend="inline", mode="lockstep")
    assert_same_run(inline.run_dir, on_ray(case, tmp_path / "ray", ray_address, 2, "lockstep"))


@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize(("algo", "actors"), [("impala", 1), ("appo", 2), *(slow(*row) for row in FURTHER)])
def test_pipelined_actors_on_ray_equal_pipelined_actors_in_one_process(
    algo: str, actors: int, ray_address: str, tmp_path: Path
) -> None:
    case = replace(case_of(algo), steps=240)
    inline = run(case, tmp_path / "inline", actors=actors, backend="inline", mode="pipelined")
    assert_same_run(inline.run_dir, on_ray(case, tmp_path / "ray", ray_address, actors, "pipelined"))
