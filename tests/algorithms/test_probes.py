"""Probes: in seconds, each tells one kind of learning bug from another, for every registered algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from probe_suite import (
    BOTH_MODES,
    GAMMA,
    SUBJECTS,
    action_kinds,
    greedy_env_actions,
    subject,
    train_on_probe,
    values_of,
)
from rl_training.config.base import ReplayConfig, RolloutConfig
from rl_training.envs import probes
from rl_training.experiment.registry import algorithm_names, get_config_class

TOLERANCE = 0.05
ALGORITHMS = algorithm_names()
EVERY_KIND = [
    pytest.param(algo, continuous, id=f"{algo}-{'box' if continuous else 'discrete'}")
    for algo in ALGORITHMS
    for continuous in action_kinds(algo)
]
DISCRETE = [algo for algo in ALGORITHMS if False in action_kinds(algo)]
CONTINUOUS = [algo for algo in ALGORITHMS if True in action_kinds(algo)]
ON_POLICY = [algo for algo in ALGORITHMS if issubclass(get_config_class(algo), RolloutConfig)]
REPLAY = [algo for algo in ALGORITHMS if issubclass(get_config_class(algo), ReplayConfig)]
# One of each loop also goes through the variants that a second probe or an exact test holds for the others.
THOROUGH = ("ppo", "dqn", "sac")


def assert_values(
    algo: str, learner: Any, observations: Any, expected: Any, tolerance: float = TOLERANCE, *, episode: bool = False
) -> None:
    np.testing.assert_allclose(values_of(algo, learner, observations, episode=episode), expected, atol=tolerance)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_registered_algorithm_is_probed(algo: str) -> None:
    assert subject(algo).steps > 0


def test_no_probe_settings_are_left_over_from_an_algorithm_that_is_gone() -> None:
    assert set(SUBJECTS) <= set(ALGORITHMS)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_constant_reward_is_worth_itself(algo: str) -> None:
    learner = train_on_probe(algo, probes.ConstantRewardProbe, continuous=action_kinds(algo)[0])
    assert_values(algo, learner, [[0.0]], [1.0])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_value_depends_on_the_observation(algo: str) -> None:
    learner = train_on_probe(algo, probes.ObservationRewardProbe, continuous=action_kinds(algo)[-1], seed=1)
    assert_values(algo, learner, [[-1.0], [1.0]], [-1.0, 1.0])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_reward_one_step_away_is_discounted_once(algo: str) -> None:
    learner = train_on_probe(algo, probes.DelayedRewardProbe, continuous=action_kinds(algo)[0], seed=2)
    assert_values(algo, learner, [[0.0], [1.0]], [GAMMA, 1.0], episode=True)


# Which of the two is better depends on the observation in `test_the_action_follows_the_observation`.
@pytest.mark.parametrize(
    ("algo", "good_action"), [(algo, good) for algo in DISCRETE for good in (0, 1) if good or algo in THOROUGH]
)
def test_the_better_action_is_chosen(algo: str, good_action: int) -> None:
    learner = train_on_probe(algo, probes.ActionChoiceProbe, good_action=good_action, seed=good_action)
    assert greedy_env_actions(learner, [[0.0]]).tolist() == [good_action]
    reader, obs = subject(algo).reader, torch.zeros(1, 1)
    values = [reader.action_values(learner, obs, torch.tensor([[action]])) for action in (0, 1)]
    if values[0] is not None:
        signs = (1.0, -1.0) if good_action == 0 else (-1.0, 1.0)
        np.testing.assert_allclose([value.item() for value in values], signs, atol=TOLERANCE)
    chances = reader.probabilities(learner, obs)
    assert chances is None or chances[0, good_action] > 0.95


@pytest.mark.parametrize(("algo", "continuous"), EVERY_KIND)
def test_the_action_follows_the_observation(algo: str, continuous: bool) -> None:
    learner = train_on_probe(algo, probes.MatchObservationProbe, continuous=continuous, seed=1)
    if continuous:
        np.testing.assert_allclose(greedy_env_actions(learner, [[-0.5], [0.5]]), [[-0.5], [0.5]], atol=0.15)
    else:
        assert greedy_env_actions(learner, [[-1.0], [1.0]]).tolist() == [0, 1]


# Terminations under next-step autoreset are those of `test_a_reset_is_not_a_step`.
@pytest.mark.parametrize(
    ("algo", "terminal", "mode"),
    [
        pytest.param(algo, terminal, mode, id=f"{algo}-{'terminated' if terminal else 'truncated'}-{mode.name.lower()}")
        for algo in ALGORITHMS
        for terminal in (False, True)
        for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
        if algo in THOROUGH or not (terminal and mode == AutoresetMode.NEXT_STEP)
    ],
)
def test_a_time_limit_is_not_an_end(algo: str, terminal: bool, mode: AutoresetMode) -> None:
    length = 4
    learner = train_on_probe(
        algo,
        probes.TimeLimitRingProbe,
        mode=mode,
        length=length,
        terminal=terminal,
        surprising=subject(algo).remembers and not terminal,
        continuous=action_kinds(algo)[-1],
    )
    left = length - np.arange(length)
    expected = (1 - GAMMA**left) / (1 - GAMMA) if terminal else np.full(length, 1 / (1 - GAMMA))
    assert_values(algo, learner, np.eye(length), expected, TOLERANCE / (1 - GAMMA), episode=True)


@BOTH_MODES
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_reset_is_not_a_step(algo: str, mode: AutoresetMode) -> None:
    learner = train_on_probe(algo, probes.AutoresetCanaryProbe, mode=mode, length=2, continuous=action_kinds(algo)[-1])
    assert_values(algo, learner, [[1.0], [2.0]], [1.0 + GAMMA * 2.0, 2.0], tolerance=0.1, episode=True)


@pytest.mark.parametrize(
    ("algo", "seed"), [(algo, seed) for algo in CONTINUOUS for seed in (0, 1) if not seed or algo in THOROUGH]
)
def test_the_best_continuous_action_is_found_within_bounds_off_centre(algo: str, seed: int) -> None:
    learner = train_on_probe(algo, probes.ContinuousBanditProbe, seed=seed)
    np.testing.assert_allclose(greedy_env_actions(learner, [[0.0]]), [[2.5]], atol=0.2)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_envs_of_a_vector_are_not_mixed_up(algo: str) -> None:
    learner = train_on_probe(algo, probes.EnvIndexProbe, continuous=action_kinds(algo)[-1])
    assert_values(algo, learner, [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 3.0], tolerance=0.1)


@pytest.mark.parametrize("algo", [algo for algo in ON_POLICY if "entropy_coef" in get_config_class(algo).model_fields])
def test_a_huge_entropy_bonus_makes_the_policy_uniform(algo: str) -> None:
    learner = train_on_probe(algo, probes.ActionChoiceProbe, settings={"entropy_coef": 50.0})
    chances = subject(algo).reader.probabilities(learner, torch.zeros(1, 1))
    assert chances is not None
    np.testing.assert_allclose(chances.detach().numpy(), [[0.5, 0.5]], atol=TOLERANCE)


@pytest.mark.parametrize("algo", REPLAY)
def test_three_step_returns_reach_down_a_chain(algo: str) -> None:
    learner = train_on_probe(
        algo,
        probes.DelayedRewardProbe,
        length=4,
        continuous=action_kinds(algo)[-1],
        settings={"n_step": 3},
    )
    assert_values(algo, learner, [[0.0], [1.0], [2.0], [3.0]], [GAMMA**3, GAMMA**2, GAMMA, 1.0], episode=True)
