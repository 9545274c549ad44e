"""Exploration: the statistics of every kind of randomness, and where it starts anew."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from replay_helpers import BOX, DISCRETE, OBSERVATIONS, kolmogorov_distance, kolmogorov_limit, make_batch, make_learner
from rl_training.algorithms.common.exploration import (
    FEW,
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    epsilon_greedy,
    make_action_noise,
    random_actions,
    uniform_or_greedy,
)
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_spec


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def chi_square(counts: np.ndarray, expected: np.ndarray | float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_random_box_actions_are_uniform_on_the_policy_scale_whatever_the_bounds() -> None:
    actions = random_actions(BOX, 4000, rng())
    assert actions.shape == (4000, 2) and actions.dtype == np.float32
    for column in actions.T:
        assert kolmogorov_distance(column, -1.0, 1.0) < kolmogorov_limit(4000)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.06


def test_the_uniformity_test_sees_a_wrong_range() -> None:
    actions = random_actions(BOX, 4000, rng())
    assert kolmogorov_distance(actions[:, 0], 0.0, 3.0) > kolmogorov_limit(4000)
    assert kolmogorov_distance(0.9 * actions[:, 0], -1.0, 1.0) > kolmogorov_limit(4000)


def test_random_discrete_actions_have_every_category_equally_often() -> None:
    actions = random_actions(DISCRETE, 4000, rng())
    assert actions.shape == (4000,)
    # 16.27 is exceeded once in a thousand by chi-square with three degrees of freedom.
    assert chi_square(np.bincount(actions, minlength=4), 1000.0) < 16.27


@pytest.mark.parametrize(
    ("space", "sizes"), [(gym.spaces.MultiDiscrete([2, 5]), (2, 5)), (gym.spaces.MultiBinary(3), (2, 2, 2))]
)
def test_random_actions_of_several_categories_fill_each_column(space: gym.Space, sizes: tuple[int, ...]) -> None:
    actions = random_actions(Spaces(OBSERVATIONS, space), 2000, rng())
    assert actions.shape == (2000, len(sizes))
    for column, size in zip(actions.T, sizes, strict=True):
        counts = np.bincount(column, minlength=size)
        assert len(counts) == size and chi_square(counts, 2000 / size) < 18.5


def itself(obs: np.ndarray) -> np.ndarray:
    return obs


def test_epsilon_zero_is_greedy_and_epsilon_one_is_uniform() -> None:
    greedy = np.full(4000, 3)
    np.testing.assert_array_equal(epsilon_greedy(itself, greedy, 4, 0.0, rng()), greedy)
    counts = np.bincount(epsilon_greedy(itself, greedy, 4, 1.0, rng()), minlength=4)
    assert chi_square(counts, 1000.0) < 16.27


def test_epsilon_is_the_probability_of_a_random_action_row_by_row() -> None:
    greedy = rng(1).integers(4, size=40_000)
    chosen = epsilon_greedy(itself, greedy, 4, 0.3, rng())
    # A random action is the greedy one by chance in one case of four.
    assert np.mean(chosen != greedy) == pytest.approx(0.3 * 3 / 4, abs=0.01)
    changed_by_vector_step = (chosen != greedy).reshape(-1, 4).sum(1)
    assert set(changed_by_vector_step) == {0, 1, 2, 3, 4}


def test_one_row_takes_the_numbers_of_the_stream_that_many_rows_take() -> None:
    """One env has a shorter way, and all published runs of one env came by the longer one."""
    single, many = rng(5), rng(5)
    for _ in range(500):
        (chosen,) = epsilon_greedy(itself, np.array([7]), 3, 0.5, single)
        expected = many.integers(3, size=1)[0] if (many.random(1) < 0.5)[0] else 7
        assert chosen == expected
    assert single.bit_generator.state == many.bit_generator.state


def test_nobody_asks_the_network_when_every_action_is_random() -> None:
    def never(obs: np.ndarray) -> np.ndarray:
        raise AssertionError("asked")

    for rows in (1, 3):
        assert epsilon_greedy(never, np.zeros(rows), 4, 1.0, rng()).shape == (rows,)


@pytest.mark.parametrize("rows", [1, 3, 8, FEW + 2])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("num_actions", [2, 3])
def test_decisions_made_beforehand_are_those_of_every_step(num_actions: int, epsilon: float, rows: int) -> None:
    """Also where half a number is left over from before, and the stream ends at the same place."""
    zeros = np.zeros(rows, np.int64)
    for drawn_before in (0, 1):
        one, other = rng(5), rng(5)
        for each in (one, other):
            each.integers(2, size=drawn_before)
        decided = uniform_or_greedy(num_actions, epsilon, one, 40, rows)
        stepped = [epsilon_greedy(lambda _: zeros - 1, zeros, num_actions, epsilon, other) for _ in range(40)]
        np.testing.assert_array_equal(decided, stepped)
        assert one.bit_generator.state["state"] == other.bit_generator.state["state"]
        assert one.random() == other.random() and one.integers(2**31) == other.integers(2**31)


def test_gaussian_noise_has_its_deviation_per_dimension_and_row() -> None:
    applied = GaussianNoise(0.1).apply(np.zeros((20_000, 2), np.float32), rng())
    assert applied.dtype == np.float32
    assert np.abs(applied.mean(0)).max() < 0.003
    np.testing.assert_allclose(applied.std(0), 0.1, rtol=0.02)
    assert abs(np.corrcoef(applied.T)[0, 1]) < 0.03
    inner = np.mean(np.abs(applied) < 0.1)
    assert inner == pytest.approx(0.6827, abs=0.01)


@pytest.mark.parametrize("kind", ["gaussian", "ou"])
def test_noise_is_added_to_the_action_and_clipped_to_the_policy_scale(kind: str) -> None:
    actions = np.tile(np.array([[0.3, -0.95]], np.float32), (5000, 1))
    before = actions.copy()
    applied = make_action_noise(kind, 0.2).apply(actions, rng(), np.zeros(5000, bool))
    np.testing.assert_array_equal(actions, before)
    assert applied[:, 0].mean() == pytest.approx(0.3, abs=0.01)
    assert applied.min() == -1.0 and applied.max() <= 1.0
    assert np.mean(applied[:, 1] == -1.0) == pytest.approx(0.4013, abs=0.03)  # P(0.2 z < -0.05)


def test_without_deviation_the_action_stays() -> None:
    actions = rng().uniform(-1, 1, (10, 2)).astype(np.float32)
    for kind in ("gaussian", "ou"):
        np.testing.assert_array_equal(make_action_noise(kind, 0.0).apply(actions, rng()), actions)


def test_noise_kinds_by_name() -> None:
    assert isinstance(make_action_noise("gaussian", 0.1), GaussianNoise)
    ou = make_action_noise("ou", 0.1)
    assert isinstance(ou, OrnsteinUhlenbeckNoise)
    assert (ou.sigma, ou.theta) == (0.1, 0.15)
    for unknown in ("precision", "white", ""):
        with pytest.raises(ValueError, match=f"'{unknown}' is not a kind of action noise"):
            make_action_noise(unknown, 0.1)


def test_ou_noise_equals_its_recursion() -> None:
    noise, draws, source = OrnsteinUhlenbeckNoise(0.05), rng(3), rng(3)
    x = np.zeros((2, 2))
    for _ in range(30):
        x = x + 0.15 * (0.0 - x) + 0.05 * draws.standard_normal((2, 2), dtype=np.float32)
        np.testing.assert_allclose(noise.apply(np.zeros((2, 2), np.float32), source), x, atol=1e-6)


def test_ou_noise_has_its_stationary_deviation_and_correlation_in_time() -> None:
    noise, source = OrnsteinUhlenbeckNoise(0.02), rng()
    zeros = np.zeros((50, 2), np.float32)
    path = np.array([noise.apply(zeros, source) for _ in range(1000)])[100:]
    assert path.std() == pytest.approx(0.02 / np.sqrt(1 - 0.85**2), rel=0.03)
    now, later = path[:-1].ravel(), path[1:].ravel()
    assert np.corrcoef(now, later)[0, 1] == pytest.approx(0.85, abs=0.01)
    across = np.corrcoef(path.reshape(len(path), -1).T)
    assert np.abs(across - np.eye(100)).mean() < 0.2


def test_ou_noise_starts_anew_only_in_the_envs_whose_episode_starts() -> None:
    noise = OrnsteinUhlenbeckNoise(0.05)
    zeros = np.zeros((3, 2), np.float32)
    for seed in range(20):
        noise.apply(zeros, rng(seed))
    before = noise.state.copy()
    applied = noise.apply(zeros, rng(99), np.array([False, True, False]))
    draws = rng(99).standard_normal((3, 2), dtype=np.float32)
    np.testing.assert_allclose(applied[1], 0.05 * draws[1], rtol=1e-6)
    for row in (0, 2):
        np.testing.assert_allclose(applied[row], 0.85 * before[row] + 0.05 * draws[row], atol=1e-6)


def test_ou_noise_is_clipped_on_the_way_out_but_not_in_its_memory() -> None:
    noise = OrnsteinUhlenbeckNoise(1.0)
    ones = np.ones((4, 2), np.float32)
    for seed in range(10):
        assert np.abs(noise.apply(ones, rng(seed))).max() <= 1.0
    assert np.abs(noise.state).max() > 1.0


def test_ou_noise_goes_on_from_its_saved_state() -> None:
    noise = OrnsteinUhlenbeckNoise(0.1)
    zeros = np.zeros((3, 2), np.float32)
    for seed in range(5):
        noise.apply(zeros, rng(seed))
    other = OrnsteinUhlenbeckNoise(0.1)
    other.load_state_dict(noise.state_dict())
    np.testing.assert_array_equal(noise.apply(zeros, rng(9)), other.apply(zeros, rng(9)))
    # The copy has a memory of its own.
    noise.apply(zeros, rng(10))
    assert not np.array_equal(noise.state, other.state)


@pytest.mark.parametrize("algo", ["ddpg", "d4pg", "td3", "naf"])
@pytest.mark.parametrize("kind", ["gaussian", "ou"])
def test_learners_add_noise_of_the_configured_kind_and_size_only_when_exploring(algo: str, kind: str) -> None:
    learner = make_learner(algo, BOX, noise_type=kind, exploration_noise=0.05)
    obs = rng().standard_normal((4000, 3)).astype(np.float32) * 0.1
    starts = np.ones(4000, bool)
    still = learner.act(obs, explore=False).actions
    np.testing.assert_array_equal(still, learner.act(obs, explore=False).actions)
    noisy = learner.act(obs, explore=True, episode_starts=starts).actions
    assert np.std(noisy - still) == pytest.approx(0.05, rel=0.05)
    # A second call continues the walk of correlated noise unless episodes start: the starts must be passed on.
    again = learner.act(obs, explore=True, episode_starts=starts).actions
    assert np.std(again - still) == pytest.approx(0.05, rel=0.05)
    if kind == "ou":
        later = learner.act(obs, explore=True, episode_starts=~starts).actions
        assert np.std(later - still) == pytest.approx(0.05 * np.sqrt(1 + 0.85**2), rel=0.05)


def test_sac_explores_by_sampling_and_acts_by_the_mean_otherwise() -> None:
    learner = make_learner("sac", BOX)
    obs = np.tile(np.array([[0.1, -0.2, 0.3]], np.float32), (5000, 1))
    still = learner.act(obs, explore=False).actions
    sampled = learner.act(obs, explore=True).actions
    mean, log_std = learner.model.actor(torch.from_numpy(obs[:1]))
    np.testing.assert_allclose(still, torch.tanh(mean).detach().expand(5000, 2), atol=1e-6)
    before_tanh = np.arctanh(np.clip(sampled.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
    np.testing.assert_allclose(before_tanh.mean(0), mean[0].detach(), atol=0.08)
    np.testing.assert_allclose(before_tanh.std(0), log_std[0].exp().detach(), rtol=0.05)


@pytest.mark.parametrize(
    ("algo", "learning"),
    [
        ("dqn", set()),
        ("c51", set()),
        ("qr_dqn", set()),
        ("iqn", {"taus"}),
        ("rainbow", {"weight_noise"}),
        ("ddpg", set()),
        ("d4pg", set()),
        ("td3", {"target_noise"}),
        ("sac", {"policy_noise"}),
        ("naf", set()),
        ("mpo", {"policy_noise"}),
        ("tqc", {"policy_noise"}),
        ("td7", {"target_noise"}),
        ("crossq", {"policy_noise"}),
        ("redq", {"policy_noise", "target_critics"}),
        ("droq", {"policy_noise", "target_critics", "dropout"}),
    ],
)
def test_exploring_and_learning_draw_from_streams_of_their_own(algo: str, learning: set[str]) -> None:
    """Acting once more must not shift what an update draws, nor a longer evaluation anything at all."""
    spaces = DISCRETE if get_spec(algo).actions == ("discrete",) else BOX
    learner = make_learner(algo, spaces)

    def drawn_from() -> set[str]:
        return set(learner.streams.state_dict()["generators"])

    obs = np.zeros((2, 3), np.float32)
    learner.act(obs, explore=False)
    assert drawn_from() == set()
    learner.update(make_batch(spaces, 4, 0))
    assert drawn_from() == learning
    learner.act(obs, explore=True)
    assert drawn_from() == learning | {"exploration"}
