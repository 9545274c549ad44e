"""V-trace against the paper's sum, published numbers, two public implementations and its properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from on_policy_helpers import oracle_cases
from rl_training.algorithms.common.returns import gae
from rl_training.algorithms.common.vtrace import VTrace, vtrace
from vtrace_helpers import by_the_paper

few = settings(max_examples=20)
seeds = st.integers(0, 10_000)
caps = st.floats(0.2, 3.0)
lambdas = st.sampled_from([0.0, 0.4, 0.9, 1.0])


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)[:, None]


def random_problem(seed: int, steps: int = 9, envs: int = 3, gamma: float = 0.93) -> dict[str, np.ndarray]:
    """Values that fit together as those of a rollout do: a next value is the next row's, or the final one's."""
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    terminated = rng.random(shape) < 0.2
    truncated = (rng.random(shape) < 0.2) & ~terminated
    values, next_values = rng.standard_normal((2, *shape))
    inner = ~(terminated | truncated)[:-1]
    next_values[:-1][inner] = values[1:][inner]
    return {
        "rewards": rng.standard_normal(shape),
        "values": values,
        "next_values": next_values,
        "discounts": np.where(terminated, 0.0, gamma),
        "ends": terminated | truncated,
        "log_probs": rng.standard_normal(shape),
        "behavior_log_probs": rng.standard_normal(shape),
    }


def on_policy(problem: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return problem | {"log_probs": problem["behavior_log_probs"]}


@given(seed=seeds, rho_bar=caps, c_bar=caps, pg_rho_bar=caps, trace_lambda=lambdas)
@few
def test_vtrace_is_the_sum_of_the_paper(seed: int, **options: float) -> None:
    problem = random_problem(seed)
    targets, gradients = by_the_paper(problem, **options)
    found = vtrace(**problem, **options)
    np.testing.assert_allclose(found.targets, targets, atol=1e-12)
    np.testing.assert_allclose(found.policy_gradient_advantages, gradients, atol=1e-12)


def test_published_numbers_of_the_authors_own_test() -> None:
    """Inputs and results of scalable_agent's test, first column: weights from e^-2.5 to e^1.5, c capped at 1."""
    ramp = column(0, 1, 2, 3, 4)
    found = vtrace(
        ramp,
        ramp,
        column(1, 2, 3, 4, 1),
        np.full((5, 1), 0.9),
        np.zeros((5, 1), bool),
        5 * (ramp / 5 - 0.5),
        np.zeros((5, 1)),
        rho_bar=3.7,
        pg_rho_bar=2.2,
    )
    np.testing.assert_allclose(found.targets[:, 0], [0.200182, 2.709682, 8.513628, 11.932397, 7.33], atol=1e-6)
    np.testing.assert_allclose(
        found.policy_gradient_advantages[:, 0], [0.200182, 1.709682, 6.513628, 10.876614, 1.98], atol=1e-6
    )


def test_equals_rlax_on_single_trajectories() -> None:
    for inputs, outputs in oracle_cases("vtrace", "rlax"):
        values, discounts = inputs["values"][:, None], inputs["discounts"][:, None]
        log_ratios = inputs["log_ratios"][:, None]
        found = vtrace(
            inputs["rewards"][:, None],
            values[:-1],
            values[1:],
            discounts,
            discounts == 0,
            log_ratios,
            np.zeros_like(log_ratios),
            **{name: inputs[name] for name in ("rho_bar", "pg_rho_bar", "trace_lambda")},
        )
        np.testing.assert_allclose((found.targets - values[:-1])[:, 0], outputs["errors"], atol=1e-10)
        gradients = outputs["policy_gradient_advantages"]
        np.testing.assert_allclose(found.policy_gradient_advantages[:, 0], gradients, atol=1e-10)


def test_equals_torchrl_with_terminations_and_truncations() -> None:
    for inputs, outputs in oracle_cases("vtrace", "torchrl"):
        assert inputs["terminated"].any() and inputs["truncated"].any()
        names = ("log_probs", "behavior_log_probs", "c_bar", "rho_bar")
        found = vtrace(
            *(inputs[name] for name in ("rewards", "values", "next_values")),
            np.where(inputs["terminated"], 0.0, inputs["gamma"]),
            inputs["terminated"] | inputs["truncated"],
            **{name: inputs[name] for name in names},
            pg_rho_bar=inputs["rho_bar"],
        )
        # torchrl holds gamma and its caps in float32.
        np.testing.assert_allclose(found.targets, outputs["targets"], atol=1e-6)
        gradients = outputs["policy_gradient_advantages"]
        np.testing.assert_allclose(found.policy_gradient_advantages, gradients, atol=1e-6)


def test_truncation_does_not_leak_the_next_episodes_value() -> None:
    """r = 0, gamma = 1, V = 1 in the first episode and 100 in the second: no advantage anywhere, and never 99."""
    values, zeros = column(1, 1, 100, 100), np.zeros((4, 1))
    ends = np.array([[False], [True], [False], [False]])
    found = vtrace(zeros, values, values, np.ones((4, 1)), ends, zeros, zeros)
    np.testing.assert_array_equal(found.policy_gradient_advantages, zeros)
    np.testing.assert_array_equal(found.advantages, zeros)
    np.testing.assert_array_equal(found.targets, values)


@given(seed=seeds)
@few
def test_on_policy_with_lambda_one_is_the_n_step_bellman_target(seed: int) -> None:
    p = on_policy(random_problem(seed))
    found = vtrace(**p)
    steps, envs = p["rewards"].shape
    for env in range(envs):
        following = 0.0
        for t in reversed(range(steps)):
            is_cut = t == steps - 1 or p["ends"][t, env]
            after = p["next_values"][t, env] if is_cut else following
            following = p["rewards"][t, env] + p["discounts"][t, env] * after
            assert found.targets[t, env] == pytest.approx(following, abs=1e-12)


@given(seed=seeds, trace_lambda=lambdas)
@few
def test_on_policy_is_the_lambda_return_and_gae(seed: int, trace_lambda: float) -> None:
    p = on_policy(random_problem(seed))
    found = vtrace(**p, trace_lambda=trace_lambda)
    names = ("rewards", "values", "next_values", "discounts", "ends")
    expected = gae(*(p[name] for name in names), trace_lambda)
    np.testing.assert_allclose(found.targets - p["values"], expected, atol=1e-12)
    np.testing.assert_allclose(found.policy_gradient_advantages, expected, atol=1e-12)


@given(seed=seeds, cut=st.integers(1, 8), trace_lambda=lambdas)
@few
def test_two_episodes_in_one_rollout_equal_each_alone(seed: int, cut: int, trace_lambda: float) -> None:
    p = random_problem(seed)
    p["ends"][cut - 1] = True
    parts = [
        vtrace(**{name: array[part] for name, array in p.items()}, trace_lambda=trace_lambda)
        for part in np.s_[:cut, cut:]
    ]
    for whole, first, second in zip(vtrace(**p, trace_lambda=trace_lambda), *parts, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate([first, second]))


@given(seed=seeds)
@few
def test_envs_do_not_mix(seed: int) -> None:
    p = random_problem(seed)
    order = np.random.default_rng(seed).permutation(3)
    permuted = vtrace(**{name: array[:, order] for name, array in p.items()})
    for found, expected in zip(permuted, vtrace(**p), strict=True):
        np.testing.assert_array_equal(found, expected[:, order])


def three_steps(**changes: Any) -> VTrace:
    zeros = np.zeros((3, 1))
    problem: dict[str, Any] = {"rewards": column(0, 0, 5), "values": zeros, "next_values": zeros.copy()}
    problem |= {"discounts": np.full((3, 1), 0.5), "ends": np.zeros((3, 1), bool)}
    problem |= {"log_probs": zeros, "behavior_log_probs": zeros}
    return vtrace(**(problem | changes))


def test_a_reward_on_the_last_step_moves_every_target() -> None:
    np.testing.assert_allclose(three_steps().targets[:, 0], [1.25, 2.5, 5])


def test_nothing_after_a_terminal_step_changes_what_is_before_it() -> None:
    ends, discounts = np.array([[False], [True], [False]]), column(0.5, 0, 0.5)
    found = three_steps(ends=ends, discounts=discounts)
    np.testing.assert_array_equal(found.targets[:, 0], [0, 0, 5])
    np.testing.assert_array_equal(found.policy_gradient_advantages[:2], np.zeros((2, 1)))


def test_an_action_the_learned_policy_never_takes_cuts_the_trace() -> None:
    found = three_steps(log_probs=column(0, -1000, 0))
    np.testing.assert_array_equal(found.targets[:, 0], [0, 0, 5])
    # Its own gradient is weighed down to nothing as well, while the unweighted advantage is still known.
    assert found.policy_gradient_advantages[1, 0] == 0
    assert found.advantages[1, 0] == 2.5


def test_weights_beyond_the_range_of_floats_are_capped() -> None:
    found = three_steps(log_probs=column(0, 0, 1e4), rho_bar=2.0, pg_rho_bar=3.0)
    assert found.targets[2, 0] == 10
    assert found.policy_gradient_advantages[2, 0] == 15


@pytest.mark.parametrize(("rho_bar", "expected"), [(1.0, 1 / 3), (2.0, 0.2)])
def test_learning_from_a_fixed_behavior_policy_ends_at_the_value_that_the_paper_proves(
    rho_bar: float, expected: float
) -> None:
    """One state, rewards 0 and 1, mu = (.5, .5), pi = (.9, .1), gamma .5.

    The fixed point is the value of the policy proportional to min(rho_bar mu, pi): (5/6, 1/6) or pi itself.
    """
    actions = np.random.default_rng(0).integers(2, size=(20_000, 1))
    log_probs = np.log(np.array([0.9, 0.1]))[actions]
    half = np.full(actions.shape, 0.5)
    shared = (half, np.zeros(actions.shape, bool), log_probs, np.log(half))
    value = 0.0
    for _ in range(60):
        values = np.full(actions.shape, value)
        value = float(vtrace(actions.astype(float), values, values, *shared, rho_bar=rho_bar).targets.mean())
    assert value == pytest.approx(expected, abs=0.02)


def test_inputs_are_left_alone_and_single_precision_is_kept() -> None:
    p = {name: a if a.dtype == bool else a.astype(np.float32) for name, a in random_problem(0).items()}
    before = {name: array.copy() for name, array in p.items()}
    found = vtrace(**p, rho_bar=1.5, trace_lambda=0.9)
    assert [part.dtype for part in found] == [np.float32] * 3
    for name, array in p.items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("name", ["rewards", "next_values", "discounts", "ends", "behavior_log_probs"])
def test_arrays_of_different_shapes_are_refused_by_name(name: str) -> None:
    problem = random_problem(0)
    # Numpy would broadcast a single row, and nobody would notice.
    problem[name] = problem[name][:1]
    with pytest.raises(ValueError, match=rf"the same shape \[T, N\].*{name} \(1, 3\)"):
        vtrace(**problem)


def test_arrays_without_an_env_axis_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the same shape \[T, N\]"):
        vtrace(**{name: array[:, 0] for name, array in random_problem(0).items()})


@pytest.mark.parametrize("name", ["rho_bar", "c_bar", "pg_rho_bar"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_caps_that_are_not_positive_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} > 0"):
        vtrace(**random_problem(0), **{name: value})
