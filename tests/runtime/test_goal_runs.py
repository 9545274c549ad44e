"""Hindsight replay in whole runs: every replay algorithm learns with it, resumes exactly, and refuses other envs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.config.algorithm_table import ALGORITHMS, get_config_class
from rl_training.envs.task_probes import BitFlipProbe, PointGoalProbe
from rl_training.errors import EnvError
from rl_training.runtime.workflows import resume, train
from run_cases import NORMALIZED, PRIORITIES, REPLAY, Case, assert_same_run, stop_at

# r2d2 refuses hindsight: it replays whole windows, each with one goal.
REPLAYING = [name for name, row in ALGORITHMS.items() if row.loop == "replay" and name != "r2d2"]


def few_bits() -> BitFlipProbe:
    return BitFlipProbe(4)


def short_walk() -> PointGoalProbe:
    return PointGoalProbe(8)


def case_of(algo: str, **options: Any) -> Case:
    env = few_bits if "discrete" in ALGORITHMS[algo].actions else short_walk
    offered = {**REPLAY, **PRIORITIES, "hindsight": 0.8, "buffer_size": 60, "num_action_samples": 4}
    settings = {name: value for name, value in offered.items() if name in get_config_class(algo).model_fields}
    return Case(
        algo,
        f"callable:{env.__name__}",
        steps=80,
        num_envs=2,
        model=NORMALIZED,
        settings=settings,
        env=env,
        options=options,
    )


@pytest.mark.parametrize("algo", REPLAYING)
def test_every_replay_algorithm_resumes_exactly_with_hindsight(algo: str, tmp_path: Path) -> None:
    case = case_of(algo)
    whole = train(case.config(tmp_path / "whole"), env=case.env, show=False)
    half = train(case.config(tmp_path / "halves"), env=case.env, show=False, callback=stop_at(case.steps // 2))
    assert half.interrupted
    second = resume(half.run_dir, env=case.env, show=False)
    assert_same_run(whole.run_dir, second.run_dir)
    assert whole.evaluation is not None and "info_is_success" in whole.evaluation.info_means


def test_async_and_given_vector_envs_know_their_rules(tmp_path: Path) -> None:
    case = case_of("dqn", vector_backend="async")
    first = train(case.config(tmp_path / "async"), env=case.env, show=False)
    second = train(case.config(tmp_path / "sync", vector_backend="sync"), env=case.env, show=False)
    assert first.evaluation == second.evaluation
    given = SyncVectorEnv([few_bits, few_bits], autoreset_mode=AutoresetMode.NEXT_STEP)
    assert train(case_of("dqn").config(tmp_path / "given"), env=given, eval_env=few_bits, show=False).env_steps >= 78


class Doubled(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 2.0 * float(reward)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (lambda: gym.make("CartPole-v1"), "needs a Dict observation with 'achieved_goal' and 'desired_goal'"),
        (lambda: Doubled(few_bits()), "compute_reward says -1 where the env gave -2"),
    ],
)
def test_an_env_without_usable_goals_is_refused(env: Any, words: str, tmp_path: Path) -> None:
    case = case_of("dqn")
    with pytest.raises(EnvError, match=words):
        train(case.config(tmp_path), env=env, show=False)


def test_goals_are_plain_observations_without_hindsight(tmp_path: Path) -> None:
    case = case_of("dqn")
    assert train(case.config(tmp_path / "dqn", hindsight=0.0), env=few_bits, show=False).evaluation is not None


@pytest.mark.slow
@pytest.mark.parametrize(("hindsight", "low", "high"), [(0.8, 0.9, 1.0), (0.0, 0.0, 0.5)])
def test_eight_bits_are_learned_with_hindsight_only(hindsight: float, low: float, high: float, tmp_path: Path) -> None:
    settings = {"hindsight": hindsight, "gamma": 0.98, "learning_rate": 1e-3, "learning_starts": 500}
    settings |= {"batch_size": 128, "exploration": 0.1, "tau": 0.02}
    case = Case(
        "dqn",
        "callable:BitFlipProbe",
        steps=8000,
        model={"hidden_sizes": (128,), "activation": "relu"},
        settings=settings,
        options={"eval_episodes": 50, "checkpoint_every": 8000},
    )
    result = train(case.config(tmp_path), env=lambda: BitFlipProbe(8), show=False)
    assert result.evaluation is not None
    assert low <= result.evaluation.info_means["info_is_success"] <= high
