"""Observation and reward normalization against one-shot NumPy, slow loops and recorded statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bare_agent import bare_agent
from on_policy_helpers import make_learner, make_rollout, oracle_cases
from rl_training.algorithms.common.rewards import ReturnNormalizer
from rl_training.models.encoders.normalizer import ObservationNormalizer, make_normalizer
from rl_training.runtime.evaluation import evaluate

few = settings(max_examples=20)


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), seed=st.integers(0, 1000))
@few
def test_moments_merged_in_chunks_equal_one_shot(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    chunks = [rng.normal(5.0, 3.0, (size, 4)).astype(np.float32) for size in sizes]
    normalizer = ObservationNormalizer((4,), 10.0)
    for chunk in chunks:
        normalizer.update(chunk)
    everything = np.concatenate(chunks).astype(np.float64)
    np.testing.assert_allclose(normalizer.mean, everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(normalizer.variance, everything.var(0), rtol=1e-9, atol=1e-12)
    assert float(normalizer.count) == len(everything)


def test_moments_equal_recorded_running_statistics() -> None:
    [(inputs, outputs)] = oracle_cases("running_moments")
    normalizer = ObservationNormalizer((2,), 10.0)
    for batch in inputs["batches"]:
        normalizer.update(np.array(batch))
    np.testing.assert_allclose(normalizer.mean, outputs["mean"], rtol=1e-9)
    np.testing.assert_allclose(normalizer.variance, outputs["variance"], rtol=1e-9)


def test_normalized_observations_are_standard_and_clipped() -> None:
    obs = np.random.default_rng(0).normal(100.0, 7.0, (500, 3)).astype(np.float32)
    normalizer = ObservationNormalizer((3,), 2.0)
    assert torch.equal(normalizer(torch.zeros(1, 3)), torch.zeros(1, 3))
    normalizer.update(obs)
    exact = np.clip((obs - obs.mean(0, dtype=np.float64)) / obs.std(0, dtype=np.float64), -2, 2)
    np.testing.assert_allclose(normalizer(torch.from_numpy(obs)), exact, atol=1e-4)
    np.testing.assert_allclose(normalizer.numpy(obs), exact, atol=1e-4)
    assert normalizer.numpy(obs).dtype == np.float32
    assert exact.min() == -2 and exact.max() == 2


def test_small_deviations_on_a_large_mean_survive_many_updates() -> None:
    rng = np.random.default_rng(0)
    normalizer = ObservationNormalizer((1,), 10.0)
    data = 1000 + 0.01 * rng.standard_normal((200, 50, 1))
    for chunk in data:
        normalizer.update(chunk)
    np.testing.assert_allclose(normalizer.variance, data.reshape(-1, 1).var(0), rtol=1e-6)


def test_constant_observations_stay_finite() -> None:
    normalizer = ObservationNormalizer((2,), 10.0)
    normalizer.update(np.full((5, 2), 3.0, np.float32))
    assert np.array_equal(normalizer.numpy(np.full((1, 2), 3.0, np.float32)), np.zeros((1, 2)))
    assert np.isfinite(normalizer.numpy(np.full((1, 2), 4.0, np.float32))).all()


def test_the_variance_of_a_pixel_is_at_least_one_squared_gray_level() -> None:
    normalizer = ObservationNormalizer((1, 1, 2), 10.0, pixels=True)
    images = np.full((1000, 1, 1, 2), 87, np.uint8)
    images[3, 0, 0, 1] = 88  # a flicker of one gray level, which must not look like an event
    normalizer.update(images)
    white = normalizer.numpy(np.array([[[[89, 88]]]], np.uint8))[0, 0, 0]
    np.testing.assert_allclose(white, [2.0, 0.999 / np.sqrt(1 + 0.000999)], rtol=1e-5)
    np.testing.assert_array_equal(normalizer(torch.tensor([[[[89, 88]]]], dtype=torch.uint8))[0, 0, 0], white)


def test_statistics_are_saved_with_the_module() -> None:
    normalizer, other = ObservationNormalizer((2,), 10.0), ObservationNormalizer((2,), 10.0)
    normalizer.update(np.random.default_rng(0).standard_normal((20, 2)) + 4)
    other.load_state_dict(normalizer.state_dict())
    obs = np.float32([[1.0, 9.0]])
    np.testing.assert_array_equal(other.numpy(obs), normalizer.numpy(obs))
    more = np.random.default_rng(1).standard_normal((20, 2))
    normalizer.update(more)
    other.update(more)
    assert torch.equal(other.variance, normalizer.variance) and torch.equal(other.count, normalizer.count)


def test_a_normalizer_is_made_only_when_asked_for() -> None:
    learner = make_learner("ppo")
    assert learner.model.normalizer is None
    asked = make_learner("ppo", model={"normalize_observations": True, "observation_clip": 3.0})
    assert asked.model.normalizer.clip == 3.0
    assert make_normalizer(learner.spaces, learner.model_config) is None


def test_moments_of_images_are_those_of_their_numbers() -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 3, 5, 5), dtype=np.uint8)
    images[:, 0] = 255
    whole = ObservationNormalizer((3, 5, 5), 10.0, pixels=True)
    plain = ObservationNormalizer((3, 5, 5), 10.0, pixels=True)
    for rows in np.split(images, [7, 7, 30]):
        whole.update(rows)
        plain.update(rows.astype(np.float32))
    np.testing.assert_allclose(whole.mean, plain.mean, rtol=1e-12)
    np.testing.assert_allclose(whole.variance, plain.variance, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(whole.variance, images.var(0), rtol=1e-9, atol=1e-9)


def test_acting_and_evaluating_leave_the_statistics_alone() -> None:
    import gymnasium as gym

    from rl_training.envs.spaces import Spaces

    env = gym.make("CartPole-v1")
    spaces = Spaces(env.observation_space, env.action_space)
    learner = make_learner("ppo", spaces, model={"normalize_observations": True})
    learner.observe(np.random.default_rng(0).standard_normal((10, 4)))
    before = {name: value.clone() for name, value in learner.model.normalizer.state_dict().items()}
    learner.act(np.ones((3, 4), np.float32), explore=True)
    evaluate(bare_agent(learner, spaces), lambda: gym.make("CartPole-v1"), episodes=3, seed=0)
    assert all(torch.equal(before[name], value) for name, value in learner.model.normalizer.state_dict().items())


def slow_reward_normalization(rewards, starts, valid, gamma):  # type: ignore[no-untyped-def]
    """One rollout from scratch: every return so far by its definition, their deviation over all valid rows."""
    steps, envs = rewards.shape
    returns = []
    for env in range(envs):
        for t in range(steps):
            if not valid[t, env]:
                continue
            total, weight, k = 0.0, 1.0, t
            while True:
                total += weight * float(rewards[k, env])
                if starts[k, env] or k == 0:
                    break
                weight, k = weight * gamma, k - 1
            returns.append(total)
    return np.clip(rewards / np.sqrt(np.var(returns) + 1e-8), -10, 10)


@pytest.mark.parametrize("next_step_resets", [False, True])
def test_reward_normalization_equals_the_slow_loop(next_step_resets: bool) -> None:
    learner = make_learner("ppo", num_envs=3)
    rollout = make_rollout(learner, 20, 4, next_step_resets=next_step_resets)
    found = ReturnNormalizer(0.9, 3)(rollout.rewards, rollout.episode_starts, rollout.valid)
    expected = slow_reward_normalization(rollout.rewards, rollout.episode_starts, rollout.valid, 0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.dtype == np.float32


def test_reward_normalization_step_by_step_equals_recorded_one() -> None:
    [(inputs, outputs)] = oracle_cases("reward_normalization")
    normalizer = ReturnNormalizer(inputs["gamma"], 3)
    starts = np.concatenate([np.ones((1, 3), bool), inputs["dones"][:-1]])
    for reward, start, expected in zip(inputs["rewards"], starts, outputs["rewards"], strict=True):
        found = normalizer(reward[None], start[None], np.ones((1, 3), bool))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert normalizer.variance == pytest.approx(float(outputs["return_variance"]), rel=1e-9)


def test_returns_carry_over_from_one_rollout_to_the_next_within_an_episode() -> None:
    """Two halves see the same returns as the whole: the merged moments agree."""
    learner = make_learner("ppo", num_envs=3)
    rollout = make_rollout(learner, 20, 5)
    whole, halves = ReturnNormalizer(0.9, 3), ReturnNormalizer(0.9, 3)
    whole(rollout.rewards, rollout.episode_starts, rollout.valid)
    for part in np.s_[:7, 7:]:
        scaled = halves(rollout.rewards[part], rollout.episode_starts[part], rollout.valid[part])
    assert (halves.mean, halves.variance, halves.count) == pytest.approx((whole.mean, whole.variance, whole.count))
    np.testing.assert_allclose(scaled, np.clip(rollout.rewards[7:] / np.sqrt(whole.variance), -10, 10), rtol=1e-5)


def test_a_cut_episode_does_not_leak_into_the_next_one() -> None:
    """After a checkpoint all envs start anew though no episode ended: the return must start anew too."""
    ones, one = np.ones((4, 1), np.float32), np.ones((4, 1), bool)
    starts = np.array([[True], [False], [False], [False]])
    twice, once = ReturnNormalizer(0.9, 1), ReturnNormalizer(0.9, 1)
    twice(ones, starts, one)
    twice(ones, starts, one)
    once(ones, starts, one)
    assert (twice.mean, twice.variance) == pytest.approx((once.mean, once.variance))
    np.testing.assert_array_equal(twice.running, once.running)


def test_rewards_of_rows_that_are_no_transitions_change_nothing() -> None:
    learner = make_learner("ppo", num_envs=3)
    rollout = make_rollout(learner, 20, 6, next_step_resets=True)
    noisy = np.where(rollout.valid, rollout.rewards, 50.0).astype(np.float32)
    # A row that is no transition in the last step: what follows it, in the next rollout, is a start.
    following = np.zeros((1, 3), bool)
    following[0] = ~rollout.valid[-1]
    answers = []
    for rewards in (rollout.rewards, noisy):
        normalizer = ReturnNormalizer(0.9, 3)
        first = normalizer(rewards, rollout.episode_starts, rollout.valid)[rollout.valid]
        answers.append((first, normalizer(np.ones((1, 3), np.float32), following, np.ones((1, 3), bool))))
    for clean, dirty in zip(*answers, strict=True):
        np.testing.assert_array_equal(clean, dirty)


def test_reward_normalization_clips_and_never_shifts() -> None:
    normalizer = ReturnNormalizer(0.9, 1)
    rewards = np.float32([[1.0], [1.001], [0.999], [0.0]])
    starts = valid = np.ones((4, 1), bool)
    normalizer(np.float32([[1.0], [1.001], [0.999], [1.0]]), starts, valid)
    normalizer.variance = 1e-6
    normalizer.count = 1e12
    found = normalizer(rewards, starts, valid)
    assert found.max() == 10 and found[3, 0] == 0


def test_reward_normalizer_state_round_trip() -> None:
    learner = make_learner("ppo", num_envs=3)
    rollout = make_rollout(learner, 20, 7)
    first, second = ReturnNormalizer(0.9, 3), ReturnNormalizer(0.9, 3)
    first(rollout.rewards, rollout.episode_starts, rollout.valid)
    second.load_state_dict(first.state_dict())
    starts = np.zeros_like(rollout.episode_starts)
    answers = [n(rollout.rewards, starts, rollout.valid) for n in (first, second)]
    np.testing.assert_array_equal(*answers)


def test_learner_scales_then_clips() -> None:
    learner = make_learner("ppo", reward_scale=2.0, reward_clip=1.5)
    rollout = make_rollout(learner, 20, 8)
    expected = np.clip(rollout.rewards * 2, -1.5, 1.5)
    np.testing.assert_array_equal(learner.shape_rewards(rollout.rewards), expected)
    assert expected.max() == 1.5 and (np.abs(expected) < 1.5).any()


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_learners_normalize_rewards_by_their_own_discount(algo: str) -> None:
    learner = make_learner(algo, gamma=0.5, normalize_rewards=True)
    assert learner.return_normalizer.gamma == 0.5
    assert make_learner(algo).return_normalizer is None


def test_the_fast_way_to_normalize_a_few_rows_gives_the_bits_of_clip_and_follows_updates() -> None:
    normalizer = ObservationNormalizer((3,), 2.0)
    normalize, rng = normalizer.numpy_forward(), np.random.default_rng(0)
    for _ in range(3):
        normalizer.update(rng.normal(5, 3, (20, 3)).astype(np.float32))
        obs = rng.normal(5, 9, (4, 3)).astype(np.float32)
        obs[0] = np.nan, np.inf, -np.inf
        exact = np.clip((obs - normalizer.shift.numpy()) * normalizer.scale.numpy(), -2.0, 2.0)
        assert normalize(obs).tobytes() == normalizer.numpy(obs).tobytes() == exact.tobytes()
