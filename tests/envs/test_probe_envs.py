"""Probe envs: each pays and ends as its docstring promises."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_training.envs import probes

PROBES = {
    "constant": probes.ConstantRewardProbe,
    "observation": probes.ObservationRewardProbe,
    "delayed": probes.DelayedRewardProbe,
    "match": probes.MatchObservationProbe,
    "ring": probes.TimeLimitRingProbe,
    "terminal_ring": partial(probes.TimeLimitRingProbe, terminal=True),
    "canary": probes.AutoresetCanaryProbe,
    "index": partial(probes.EnvIndexProbe, 3),
}


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", PROBES)
def test_every_probe_keeps_to_its_spaces_and_needs_a_reset_after_the_end(name: str, continuous: bool) -> None:
    env = PROBES[name](continuous=continuous)
    assert isinstance(env.action_space, gym.spaces.Box) == continuous
    observation, _ = env.reset(seed=1)
    over = False
    while not over:
        assert env.observation_space.contains(observation)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
    assert env.observation_space.contains(observation)
    with pytest.raises(RuntimeError, match="over"):
        env.step(env.action_space.sample())


def episode(env: gym.Env, actions: list[Any], seed: int = 0) -> list[tuple[float, float, bool, bool]]:
    env.reset(seed=seed)
    return [(float(o[0]), r, terminated, truncated) for o, r, terminated, truncated, _ in map(env.step, actions)]


def test_value_probes_pay_what_they_promise() -> None:
    assert episode(probes.ConstantRewardProbe(), [0]) == [(0.0, 1.0, True, False)]
    assert episode(probes.DelayedRewardProbe(3), [0, 1, 0]) == [
        (1.0, 0.0, False, False),
        (2.0, 0.0, False, False),
        (3.0, 1.0, True, False),
    ]
    assert episode(probes.EnvIndexProbe(4), [1]) == [(4.0, 4.0, True, False)]
    assert episode(probes.AutoresetCanaryProbe(2), [0, 0])[-1] == (-1.0, 2.0, True, False)
    assert episode(probes.AutoresetCanaryProbe(2, truncate=True), [0, 0])[-1] == (-1.0, 2.0, False, True)


def test_the_observation_probe_shows_both_signs_and_pays_them() -> None:
    env = probes.ObservationRewardProbe()
    env.reset(seed=0)
    shown = []
    for _ in range(40):
        observation, _ = env.reset()
        assert env.step(0)[1] == observation[0]
        shown.append(float(observation[0]))
    assert set(shown) == {-1.0, 1.0}


def test_choice_probes_reward_the_right_action() -> None:
    assert [episode(probes.ActionChoiceProbe(), [action])[0][1] for action in (0, 1)] == [-1.0, 1.0]
    bandit = probes.ContinuousBanditProbe()
    assert (bandit.action_space.low[0], bandit.action_space.high[0]) == (0.0, 3.0)
    assert [episode(bandit, [np.array([a])])[0][1] for a in (2.5, 1.5, 3.0)] == [0.0, -1.0, -0.25]
    for continuous, size in ((False, 1.0), (True, 0.5)):
        env = probes.MatchObservationProbe(continuous=continuous)
        for seed in range(8):
            shown = float(env.reset(seed=seed)[0][0])
            assert abs(shown) == size
            right = np.array([shown]) if continuous else int(shown > 0)
            wrong = np.array([-shown]) if continuous else int(shown < 0)
            assert episode(env, [right], seed)[0][1] == (0.0 if continuous else 1.0)
            assert episode(env, [wrong], seed)[0][1] == -1.0


def test_the_ring_comes_home_by_truncation_or_termination() -> None:
    for terminal in (False, True):
        env = probes.TimeLimitRingProbe(4, terminal=terminal)
        start, _ = env.reset(seed=0)
        steps = [env.step(0) for _ in range(4)]
        np.testing.assert_array_equal([step[0].argmax() for step in steps], [1, 2, 3, 0])
        np.testing.assert_array_equal(steps[-1][0], start)
        assert [step[1] for step in steps] == [1.0] * 4
        assert [step[2] for step in steps] == [False] * 3 + [terminal]
        assert [step[3] for step in steps] == [False] * 3 + [not terminal]


def test_probes_side_by_side_keep_their_index_in_both_modes() -> None:
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        vector = probes.probe_vector_env(probes.EnvIndexProbe, 3, autoreset_mode=mode, continuous=True)
        observations, _ = vector.reset(seed=0)
        np.testing.assert_array_equal(observations, [[0.0], [1.0], [2.0]])
        np.testing.assert_array_equal(vector.step(np.zeros((3, 1), np.float32))[1], [0.0, 1.0, 2.0])
