"""Advantages and the boundary rules of rollouts, against fixtures, public implementations and the definition."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from on_policy_helpers import make_learner, make_rollout, oracle_cases, slow_advantages, value_of
from rl_training.algorithms.common.on_policy import PolicyBatch, minibatches, normalize, policy_batch
from rl_training.algorithms.common.returns import explained_variance, gae
from rl_training.data.rollout import Rollout

few = settings(max_examples=20)
seeds = st.integers(0, 10_000)


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)[:, None]


def random_problem(seed: int, steps: int = 9, envs: int = 3, gamma: float = 0.93) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    terminated = rng.random(shape) < 0.2
    truncated = (rng.random(shape) < 0.2) & ~terminated
    return {
        "rewards": rng.standard_normal(shape),
        "values": rng.standard_normal(shape),
        "next_values": rng.standard_normal(shape),
        "discounts": np.where(terminated, 0.0, gamma),
        "ends": terminated | truncated,
    }


def by_definition(rewards, values, next_values, discounts, ends, gae_lambda):  # type: ignore[no-untyped-def]
    """Sum of discounted TD errors up to the end of the episode, written forward in time."""
    advantages = np.zeros_like(rewards)
    steps, envs = rewards.shape
    for env in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                error = rewards[k, env] + discounts[k, env] * next_values[k, env] - values[k, env]
                advantages[t, env] += weight * error
                if ends[k, env]:
                    break
                weight *= discounts[k, env] * gae_lambda
    return advantages


@pytest.mark.parametrize(
    ("rewards", "gae_lambda", "expected"),
    [((1, 1, 1), 0.8, (3.85344, 2.852, 1.6)), ((1, 2, 3), 1.0, (7.146,))],
)
def test_gae_fixtures(rewards: tuple[float, ...], gae_lambda: float, expected: tuple[float, ...]) -> None:
    values = column(1, 2, 3, 4)
    found = gae(column(*rewards), values[:-1], values[1:], np.full((3, 1), 0.9), np.zeros((3, 1), bool), gae_lambda)
    np.testing.assert_allclose(found[: len(expected), 0], expected, atol=1e-12)


def test_gae_equals_rlax_on_single_trajectories() -> None:
    for inputs, outputs in oracle_cases("gae", "rlax"):
        values, discounts = inputs["values"][:, None], inputs["discounts"][:, None]
        found = gae(
            inputs["rewards"][:, None], values[:-1], values[1:], discounts, discounts == 0, inputs["gae_lambda"]
        )
        np.testing.assert_allclose(found[:, 0], outputs["advantages"], rtol=0, atol=1e-10)


def test_gae_equals_torchrl_with_terminations_and_truncations() -> None:
    for inputs, outputs in oracle_cases("gae", "torchrl"):
        assert inputs["terminated"].any() and inputs["truncated"].any()
        discounts = np.where(inputs["terminated"], 0.0, inputs["gamma"])
        ends = inputs["terminated"] | inputs["truncated"]
        arrays = (inputs["rewards"], inputs["values"], inputs["next_values"], discounts, ends)
        # torchrl holds gamma in float32.
        np.testing.assert_allclose(gae(*arrays, inputs["gae_lambda"]), outputs["advantages"], atol=1e-6)


def test_advantage_plus_value_is_the_lambda_return_of_rlax() -> None:
    for inputs, outputs in oracle_cases("lambda_and_n_step_returns", "lambda_returns"):
        next_values, discounts = inputs["next_values"][:, None], inputs["discounts"][:, None]
        values = np.concatenate([[[0.3]], next_values[:-1]])
        advantages = gae(inputs["rewards"][:, None], values, next_values, discounts, discounts == 0, inputs["lambda"])
        np.testing.assert_allclose((advantages + values)[:, 0], outputs["returns"], rtol=0, atol=1e-10)


def test_truncation_does_not_leak_the_next_episodes_value() -> None:
    """r = 0, gamma = 1, V = 1 in the first episode and 100 in the second: no advantage anywhere, and never 99."""
    values = column(1, 1, 100, 100)
    ends = np.array([[False], [True], [False], [False]])
    found = gae(np.zeros((4, 1)), values, values, np.ones((4, 1)), ends, 0.95)
    np.testing.assert_array_equal(found, np.zeros((4, 1)))


@given(seed=seeds, gae_lambda=st.sampled_from([0.0, 0.3, 0.95, 1.0]))
@few
def test_gae_is_the_discounted_sum_of_td_errors(seed: int, gae_lambda: float) -> None:
    problem = random_problem(seed)
    np.testing.assert_allclose(gae(**problem, gae_lambda=gae_lambda), by_definition(**problem, gae_lambda=gae_lambda))


@given(seed=seeds)
@few
def test_lambda_zero_is_the_td_error(seed: int) -> None:
    p = random_problem(seed)
    errors = p["rewards"] + p["discounts"] * p["next_values"] - p["values"]
    np.testing.assert_array_equal(gae(**p, gae_lambda=0.0), errors)


@given(seed=seeds)
@few
def test_lambda_one_telescopes_to_the_monte_carlo_return_minus_value(seed: int) -> None:
    p = random_problem(seed, envs=1)
    p["ends"][:] = p["discounts"] == 0
    p["next_values"][:-1] = p["values"][1:]
    returns, running = np.zeros(len(p["rewards"])), p["next_values"][-1, 0]
    for t in reversed(range(len(returns))):
        running = p["rewards"][t, 0] + p["discounts"][t, 0] * running
        returns[t] = running
    np.testing.assert_allclose(gae(**p, gae_lambda=1.0)[:, 0], returns - p["values"][:, 0])


@given(seed=seeds, cut=st.integers(1, 8))
@few
def test_two_episodes_in_one_buffer_equal_each_alone(seed: int, cut: int) -> None:
    p = random_problem(seed)
    p["ends"][cut - 1] = True
    parts = [gae(**{name: array[part] for name, array in p.items()}, gae_lambda=0.9) for part in np.s_[:cut, cut:]]
    np.testing.assert_array_equal(gae(**p, gae_lambda=0.9), np.concatenate(parts))


@given(seed=seeds)
@few
def test_envs_do_not_mix(seed: int) -> None:
    p = random_problem(seed)
    order = np.random.default_rng(seed).permutation(3)
    permuted = {name: array[:, order] for name, array in p.items()}
    np.testing.assert_array_equal(gae(**permuted, gae_lambda=0.9), gae(**p, gae_lambda=0.9)[:, order])


@given(seed=seeds, scale=st.floats(0.01, 100))
@few
def test_advantages_scale_with_rewards_and_values(seed: int, scale: float) -> None:
    p = random_problem(seed)
    scaled = p | {name: p[name] * scale for name in ("rewards", "values", "next_values")}
    np.testing.assert_allclose(gae(**scaled, gae_lambda=0.9), scale * gae(**p, gae_lambda=0.9), rtol=1e-9)


def test_gae_keeps_single_precision() -> None:
    p = {name: a if a.dtype == bool else a.astype(np.float32) for name, a in random_problem(0).items()}
    assert gae(**p, gae_lambda=0.95).dtype == np.float32


def test_explained_variance() -> None:
    targets = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert explained_variance(targets, targets) == 1
    assert explained_variance(torch.full((4,), 9.0), targets) == 0
    assert explained_variance(targets + 5, targets) == 1
    torch.testing.assert_close(explained_variance(-targets, targets), torch.tensor(-3.0))
    near = explained_variance(torch.tensor([1.0, 2.0, 3.0, 3.0]), targets)
    torch.testing.assert_close(near, torch.tensor(1 - 1.6875 / 3.5))


def small_rollout() -> Rollout:
    """Two envs, four steps. Env 0 is truncated at step 1 and terminated at step 3, env 1 truncated at step 3."""
    ends = np.zeros((4, 2), bool)
    terminated, truncated = ends.copy(), ends.copy()
    terminated[3, 0] = truncated[1, 0] = truncated[3, 1] = True
    zeros = np.zeros((4, 2), np.float32)
    return Rollout(
        obs=zeros[..., None],
        actions=zeros,
        rewards=zeros,
        terminated=terminated,
        truncated=truncated,
        valid=~ends,
        episode_starts=ends,
        last_obs=np.zeros((2, 1), np.float32),
        final_steps=np.array([1, 3]),
        final_envs=np.array([0, 1]),
        final_obs=np.zeros((2, 1), np.float32),
    )


def test_next_values_are_those_of_the_true_successors() -> None:
    values = np.array([[1, 10], [2, 20], [3, 30], [4, 40]], np.float32)
    before = values.copy()
    found = small_rollout().next_values(values, np.float32([5, 50]), np.float32([-1, -2]))
    np.testing.assert_array_equal(found, [[2, 20], [-1, 30], [4, 40], [5, -2]])
    np.testing.assert_array_equal(values, before)


def test_discount_is_zero_only_after_termination() -> None:
    expected = np.full((4, 2), np.float32(0.9))
    expected[3, 0] = 0
    found = small_rollout().discounts(0.9)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float32


def test_ends_are_of_both_kinds() -> None:
    assert np.argwhere(small_rollout().ends).tolist() == [[1, 0], [3, 0], [3, 1]]


@pytest.mark.parametrize("next_step_resets", [False, True])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
def test_policy_batch_equals_the_slow_loop(next_step_resets: bool, gae_lambda: float) -> None:
    learner = make_learner("ppo", num_envs=3)
    rollout = make_rollout(learner, 12, seed=3, next_step_resets=next_step_resets)
    assert rollout.terminated.any() and rollout.truncated.any()
    batch = policy_batch(rollout, learner.model, gamma=0.9, gae_lambda=gae_lambda)
    expected = slow_advantages(rollout, rollout.rewards, value_of(learner.model), 0.9, gae_lambda)[rollout.valid]
    values = np.array([value_of(learner.model)(obs) for obs in rollout.obs[rollout.valid]])
    assert len(batch) == rollout.valid.sum()
    np.testing.assert_allclose(batch.advantages, expected, atol=1e-5)
    np.testing.assert_allclose(batch.values, values, atol=1e-6)
    np.testing.assert_allclose(batch.returns, expected + values, atol=1e-5)
    np.testing.assert_array_equal(batch.obs, rollout.obs[rollout.valid])
    np.testing.assert_array_equal(batch.actions, rollout.actions[rollout.valid])
    np.testing.assert_array_equal(batch.log_probs, rollout.extras["log_probs"][rollout.valid])
    assert not any(getattr(batch, name).requires_grad for name in PolicyBatch.__slots__)


@given(seed=seeds)
@few
def test_rows_that_are_no_transitions_influence_nothing(seed: int) -> None:
    learner = make_learner("ppo", num_envs=3)
    rollout = make_rollout(learner, 12, seed=seed, next_step_resets=True)
    rng = np.random.default_rng(seed)

    def with_noise(array: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal(array.shape).astype(array.dtype)
        return np.where(rollout.valid.reshape(*rollout.valid.shape, *[1] * (array.ndim - 2)), array, noise)

    extras = {"log_probs": with_noise(rollout.extras["log_probs"])}
    noisy = replace(rollout, obs=with_noise(rollout.obs), rewards=with_noise(rollout.rewards), extras=extras)
    first, second = (policy_batch(r, learner.model, gamma=0.9, gae_lambda=0.95) for r in (rollout, noisy))
    for name in PolicyBatch.__slots__:
        assert torch.equal(getattr(first, name), getattr(second, name)), name


def test_truncated_episode_bootstraps_from_its_final_observation_not_from_the_reset() -> None:
    learner = make_learner("ppo", num_envs=1)
    rollout = make_rollout(learner, 2, seed=0)
    rollout.truncated[:] = [[True], [False]]
    rollout.terminated[:] = False
    first = np.array([0])
    rollout = replace(rollout, final_steps=first, final_envs=first, final_obs=np.ones((1, 3), np.float32))

    def first_advantage(rollout: Rollout) -> float:
        batch = policy_batch(rollout, learner.model, gamma=0.9, gae_lambda=0.95)
        return float(batch.advantages[0])

    value = value_of(learner.model)
    expected = rollout.rewards[0, 0] + 0.9 * value(rollout.final_obs[0]) - value(rollout.obs[0, 0])
    assert first_advantage(rollout) == pytest.approx(expected, abs=1e-6)
    after_reset = rollout.obs.copy()
    after_reset[1] += 3
    assert first_advantage(replace(rollout, obs=after_reset)) == first_advantage(rollout)


def test_a_terminal_step_is_worth_its_reward_alone() -> None:
    learner = make_learner("ppo", num_envs=1)
    rollout = make_rollout(learner, 3, seed=0)
    rollout.terminated[:], rollout.truncated[:] = [[False], [False], [True]], False
    none = np.zeros(0, np.int64)
    rollout = replace(rollout, final_steps=none, final_envs=none, final_obs=np.zeros((0, 3), np.float32))
    batch = policy_batch(rollout, learner.model, gamma=0.9, gae_lambda=0.95)
    assert float(batch.returns[-1]) == pytest.approx(float(rollout.rewards[-1, 0]), abs=1e-6)


def numbered_batch(size: int) -> PolicyBatch:
    rows = torch.arange(size, dtype=torch.float32)
    return PolicyBatch(*(rows + 1000 * i for i in range(6)))


@given(size=st.integers(1, 70), piece=st.integers(1, 80), seed=seeds)
@few
def test_minibatches_cover_every_row_once_and_keep_rows_together(size: int, piece: int, seed: int) -> None:
    pieces = list(minibatches(numbered_batch(size), piece, np.random.default_rng(seed)))
    rows = torch.cat([p.obs for p in pieces])
    assert sorted(rows.tolist()) == list(range(size))
    lengths = [len(p) for p in pieces]
    assert max(lengths) - min(lengths) <= 1
    # Equal pieces of about the size: nearer to it than one piece more or less would be.
    assert len(pieces) == max(1, round(size / piece))
    for i, field in enumerate(dataclasses.fields(PolicyBatch)):
        assert torch.equal(torch.cat([getattr(p, field.name) for p in pieces]), rows + 1000 * i)


def test_minibatches_are_shuffled_anew_each_epoch() -> None:
    rng = np.random.default_rng(0)
    first, second = (torch.cat([p.obs for p in minibatches(numbered_batch(64), 16, rng)]) for _ in range(2))
    assert not torch.equal(first, torch.arange(64.0))
    assert not torch.equal(first, second)


def test_normalized_advantages_have_mean_zero_and_deviation_one() -> None:
    advantages = torch.tensor([1.0, 2.0, 4.0, 9.0], dtype=torch.float64)
    found = normalize(advantages)
    assert float(found.mean()) == pytest.approx(0, abs=1e-12)
    assert float(found.std()) == pytest.approx(1, abs=1e-7)
    assert torch.equal(found.argsort(), advantages.argsort())


def test_equal_advantages_and_a_single_one_stay_finite() -> None:
    assert torch.equal(normalize(torch.full((5,), 3.0)), torch.zeros(5))
    assert torch.equal(normalize(torch.tensor([7.0])), torch.zeros(1))
