"""Same seed, same run, to the last bit; and nothing that only watches a run changes it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.experiment.registry import algorithm_names
from rl_training.runtime.workflows import TrainResult, evaluate_checkpoint, resume, train
from rl_training.storage.state_tree import state_hash
from run_cases import CASES, Case, assert_same_run, final_hash, metric_lines, saved_state

FIRST_CASE = {case.algo: case for case in reversed(CASES.values())}
WATCHED = [FIRST_CASE["ppo"], CASES["dqn, native next-step envs, priorities and three steps"]]
BOTH_LOOPS = pytest.mark.parametrize("case", WATCHED, ids=["on-policy", "replay"])


def run(case: Case, folder: Path, **changes: Any) -> TrainResult:
    return train(case.config(folder, **changes), env=case.env, show=False)


def training_hash(result: TrainResult) -> str:
    """Of the whole state but for the records of evaluations, which belong to the watcher."""
    state = saved_state(result.checkpoint)
    del state["best_return"], state["evaluated_at"]
    return state_hash(state)


def training_lines(result: TrainResult) -> list[dict[str, Any]]:
    return [line for line in metric_lines(result.run_dir) if line["kind"] == "train"]


@pytest.mark.parametrize("algo", algorithm_names())
def test_the_seed_decides_everything(algo: str, tmp_path: Path) -> None:
    assert algo in FIRST_CASE, f"{algo} has no case in run_cases"
    case = FIRST_CASE[algo]
    first, again = run(case, tmp_path / "first"), run(case, tmp_path / "again")
    other = run(case, tmp_path / "other", seed=4)
    assert_same_run(first.run_dir, again.run_dir)
    assert first.evaluation == again.evaluation
    assert final_hash(other.run_dir) != final_hash(first.run_dir)
    assert training_lines(other) != training_lines(first)


@BOTH_LOOPS
def test_evaluation_does_not_change_training(case: Case, tmp_path: Path) -> None:
    without = run(case, tmp_path / "without", eval_every=0)
    watched = run(case, tmp_path / "with", eval_every=16, eval_episodes=3)
    evaluations = [line for line in metric_lines(watched.run_dir) if line["kind"] == "eval"]
    assert len(evaluations) > 5
    assert training_hash(watched) == training_hash(without)
    assert training_lines(watched) == training_lines(without)


@BOTH_LOOPS
def test_how_often_is_logged_does_not_change_training(case: Case, tmp_path: Path) -> None:
    often, seldom = run(case, tmp_path / "often", log_every=1), run(case, tmp_path / "seldom", log_every=1000)
    assert len(training_lines(often)) > len(training_lines(seldom))
    assert training_hash(often) == training_hash(seldom)


@BOTH_LOOPS
def test_how_many_checkpoints_are_kept_does_not_change_training(case: Case, tmp_path: Path) -> None:
    many, few = run(case, tmp_path / "many", keep_checkpoints=9), run(case, tmp_path / "few", keep_checkpoints=1)
    assert_same_run(many.run_dir, few.run_dir)


@BOTH_LOOPS
def test_the_numbers_of_a_line_do_not_depend_on_how_far_apart_lines_are(case: Case, tmp_path: Path) -> None:
    fine, coarse = run(case, tmp_path / "fine", log_every=1), run(case, tmp_path / "coarse", log_every=1000)
    by_step = {line["env_steps"]: line for line in training_lines(fine)}
    for line in training_lines(coarse):
        for name in ("updates", "episodes", "mean_return", "mean_length"):
            assert line.get(name) == by_step[line["env_steps"]].get(name)


def global_random_state() -> tuple[Any, ...]:
    state = np.random.get_state()
    return random.getstate(), state[1].tobytes(), state[2], torch.get_rng_state().numpy().tobytes()


@pytest.mark.parametrize("case", FIRST_CASE.values(), ids=FIRST_CASE.keys())
def test_global_random_generators_are_neither_read_nor_moved(case: Case, tmp_path: Path) -> None:
    hashes = []
    for attempt in range(2):
        random.seed(attempt)
        np.random.seed(attempt)
        torch.manual_seed(attempt)
        before = global_random_state()
        result = run(case, tmp_path / str(attempt), total_timesteps=case.steps // 2)
        evaluate_checkpoint(result.checkpoint, episodes=1, deterministic=False, env=case.env)
        resume(result.run_dir, total_timesteps=case.steps, env=case.env, show=False)
        assert global_random_state() == before
        hashes.append(final_hash(result.run_dir))
    assert hashes[0] == hashes[1]


def test_threads_and_signal_handlers_are_given_back(tmp_path: Path) -> None:
    import signal

    before = torch.get_num_threads(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(FIRST_CASE["ppo"], tmp_path)
    assert (torch.get_num_threads(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
