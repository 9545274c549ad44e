"""Compare action distributions with torch.distributions, recorded divergences and expected frequencies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, distributions

from on_policy_helpers import oracle_cases
from rl_training.models.distributions import Categorical, DiagonalGaussian, squashed_gaussian

few = settings(max_examples=15)
seeds = st.integers(0, 10_000)
KINDS: dict[str, Any] = {
    "discrete": Categorical((4,), scalar=True),
    "multi_discrete": Categorical((3, 2, 4), scalar=False),
    "one_of_many": Categorical((5,), scalar=False),
    "box": DiagonalGaussian(3),
}


def reference(kind: str, parameters: Tensor) -> list[Any]:
    """The torch distributions whose log-probabilities, entropies and divergences the test sums."""
    ours = KINDS[kind]
    if kind == "box":
        mean, log_std = parameters.split(ours.size, -1)
        return [distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)]
    return [distributions.Categorical(logits=part) for part in parameters.split(ours.sizes, -1)]


def draw(kind: str, rows: int, seed: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Parameters [B, P] and actions in the shape that a policy stores."""
    rng = np.random.default_rng(seed)
    ours = KINDS[kind]
    parameters = torch.from_numpy(rng.standard_normal((rows, ours.parameter_size)) * scale)
    if kind == "box":
        return parameters, torch.from_numpy(rng.standard_normal((rows, ours.size)) * 2)
    actions = torch.from_numpy(rng.integers(ours.sizes, size=(rows, len(ours.sizes))))
    return parameters, actions[:, 0] if ours.scalar else actions


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
@few
def test_log_prob_entropy_and_kl_equal_torch(kind: str, seed: int) -> None:
    ours = KINDS[kind]
    old, actions = draw(kind, 6, seed)
    new, _ = draw(kind, 6, seed + 1)
    parts, new_parts = reference(kind, old), reference(kind, new)
    columns = [actions] if kind in ("box", "discrete") else list(actions.T)
    log_prob = sum(part.log_prob(column) for part, column in zip(parts, columns, strict=True))
    kl = sum(distributions.kl_divergence(p, q) for p, q in zip(parts, new_parts, strict=True))
    assert ours.log_prob(old, actions).shape == (6,)
    torch.testing.assert_close(ours.log_prob(old, actions), log_prob)
    torch.testing.assert_close(ours.entropy(old), sum(part.entropy() for part in parts))
    torch.testing.assert_close(ours.kl(old, new), kl)
    assert (ours.kl(old, new) > 0).all()
    torch.testing.assert_close(ours.kl(old, old), torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-12)


def test_divergences_equal_recorded_ones() -> None:
    for source, ours in (("categorical", Categorical((3,), scalar=True)), ("Normal", DiagonalGaussian(2))):
        for inputs, outputs in oracle_cases("divergences", source):
            old, new = torch.from_numpy(inputs["old"]), torch.from_numpy(inputs["new"])
            np.testing.assert_allclose(ours.kl(old, new), outputs["kl"], atol=1e-12)
            np.testing.assert_allclose(ours.entropy(old), outputs["entropy"], atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_stay_finite_and_exact(dtype: torch.dtype) -> None:
    ours = Categorical((3,), scalar=True)
    logits = torch.tensor([[1000.0, 0.0, -1000.0], [-1e4, -1e4, -1e4], [80.0, -80.0, 80.0]], dtype=dtype)
    actions = torch.tensor([0, 2, 1])
    expected = torch.tensor([0, -math.log(3), -160 - math.log(2)], dtype=dtype)
    torch.testing.assert_close(ours.log_prob(logits, actions), expected)
    torch.testing.assert_close(ours.entropy(logits), torch.tensor([0, math.log(3), math.log(2)], dtype=dtype))
    assert torch.isfinite(ours.kl(logits, logits.flip(0))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_right(kind: str) -> None:
    ours = KINDS[kind]
    old, actions = draw(kind, 3, 0)
    new, _ = draw(kind, 3, 1)
    inputs = (old.requires_grad_(), new.requires_grad_())

    def everything(old: Tensor, new: Tensor) -> tuple[Tensor, ...]:
        return ours.log_prob(old, actions), ours.entropy(old), ours.kl(old, new)

    assert torch.autograd.gradcheck(everything, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_of_a_sample_equals_torch(kind: str) -> None:
    ours = KINDS[kind]
    parameters = draw(kind, 500, 2)[0].float()
    actions, log_probs = ours.sample(parameters.numpy(), np.random.default_rng(0))
    assert log_probs.shape == (500,) and log_probs.dtype == np.float32
    assert actions.dtype == (np.float32 if kind == "box" else np.int64)
    expected = ours.log_prob(parameters, torch.from_numpy(actions))
    np.testing.assert_allclose(log_probs, expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete"])
def test_sampled_frequencies_pass_chi_square(kind: str) -> None:
    ours = KINDS[kind]
    logits = draw(kind, 1, 3)[0]
    draws = 20_000
    actions, _ = ours.sample(np.repeat(logits.float().numpy(), draws, 0), np.random.default_rng(1))
    actions = actions.reshape(draws, -1)
    joint = np.ravel_multi_index(tuple(actions.T), ours.sizes)
    probabilities = np.ones(1)
    for part in logits.split(ours.sizes, -1):
        probabilities = np.outer(probabilities, part.softmax(-1)).ravel()
    counts = np.bincount(joint, minlength=len(probabilities))
    statistic = ((counts - draws * probabilities) ** 2 / (draws * probabilities)).sum()
    freedom = len(probabilities) - 1
    # Mean + 4 standard deviations of chi-square. The joint table also fails when the choices are not independent.
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_gaussian_samples_have_the_right_moments() -> None:
    ours = DiagonalGaussian(2)
    parameters = np.repeat(np.float32([[1.0, -2.0, math.log(0.5), math.log(3.0)]]), 40_000, 0)
    actions, _ = ours.sample(parameters, np.random.default_rng(0))
    np.testing.assert_allclose(actions.mean(0), [1, -2], atol=0.06)
    np.testing.assert_allclose(actions.std(0), [0.5, 3.0], rtol=0.02)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.03


class Uniforms:
    """Replaces a generator by one with a known uniform number."""

    def __init__(self, value: float) -> None:
        self.value = np.float32(value)

    def random(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.full(shape, self.value, dtype)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-24])
def test_extreme_uniforms_never_choose_an_impossible_action(uniform: float) -> None:
    """With actions of weight zero at either end, and with many actions whose sum rounds, log-probs are finite."""
    logits = np.full((1, 1000), -0.1, np.float32)
    logits[0, [0, -1]] = -1e4
    actions, log_probs = Categorical((1000,), scalar=True).sample(logits, Uniforms(uniform))  # type: ignore[arg-type]
    assert 1 <= actions[0] <= 998
    assert np.isfinite(log_probs).all()


def test_a_uniform_that_rounds_to_one_stays_in_range() -> None:
    actions, _ = Categorical((3,), scalar=True).sample(np.zeros((1, 3), np.float32), Uniforms(1.0))  # type: ignore[arg-type]
    assert actions.tolist() == [2]


def test_sampling_from_extreme_logits_neither_overflows_nor_underflows() -> None:
    logits = np.float32([[1000, 0, -1000], [-1e4, -2e4, -1e4], [-1e4, -1e4, -1e4]])
    actions, log_probs = Categorical((3,), scalar=True).sample(logits, np.random.default_rng(0))
    assert actions[0] == 0 and actions[1] != 1
    np.testing.assert_allclose(log_probs, [0, -math.log(2), -math.log(3)], atol=1e-6)


@pytest.mark.parametrize(("uniform", "expected"), [(0.1, 0), (0.3, 1), (0.6, 2), (0.9, 2)])
def test_sampling_inverts_the_cumulative_distribution(uniform: float, expected: int) -> None:
    logits = np.log(np.float32([[0.25, 0.25, 0.5]]))
    actions, log_probs = Categorical((3,), scalar=True).sample(logits, Uniforms(uniform))  # type: ignore[arg-type]
    assert actions.tolist() == [expected]
    assert log_probs[0] == pytest.approx(float(logits[0, expected]), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_mode_is_the_likeliest_action(kind: str) -> None:
    ours = KINDS[kind]
    parameters = draw(kind, 50, 4)[0].float()
    mode = ours.mode(parameters.numpy())
    best = ours.log_prob(parameters, torch.from_numpy(mode))
    for seed in range(20):
        others, _ = ours.sample(parameters.numpy(), np.random.default_rng(seed))
        assert others.shape == mode.shape and others.dtype == mode.dtype
        assert (ours.log_prob(parameters, torch.from_numpy(others)) <= best + 1e-6).all()


def test_changing_a_mode_changes_no_parameter() -> None:
    parameters = np.ones((2, 4), np.float32)
    DiagonalGaussian(2).mode(parameters)[:] = 7
    assert (parameters == 1).all()


def test_squashed_gaussian_fixture() -> None:
    mean, log_std = torch.tensor([[0.3, -1.0]], dtype=torch.float64), torch.tensor([[0.5, 2.0]]).double().log()
    noise = (torch.tensor([[0.7, 3.0]], dtype=torch.float64) - mean) / log_std.exp()
    _, log_prob = squashed_gaussian(mean, log_std, noise)
    assert float(log_prob) == pytest.approx(0.9153204014632, abs=1e-12)


@pytest.mark.parametrize("source", ["distrax.Tanh, moderate", "distrax.Tanh, saturated", "torch"])
def test_squashed_gaussian_equals_recorded_implementations(source: str) -> None:
    for inputs, outputs in oracle_cases("tanh_gaussian", source):
        columns = (torch.from_numpy(inputs[name]) for name in ("mean", "log_std", "noise"))
        actions, log_probs = squashed_gaussian(*columns)
        np.testing.assert_allclose(actions, outputs["actions"], atol=1e-12)
        np.testing.assert_allclose(log_probs, outputs["log_probs"], rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pre_tanh", [-20.0, 20.0])
def test_squashed_gaussian_is_exact_where_tanh_saturates(dtype: torch.dtype, pre_tanh: float) -> None:
    """log(1 - tanh(u)^2) tends to 2 log 2 - 2 |u|: 1 - tanh^2 itself is zero in float32."""
    mean = torch.tensor([[pre_tanh]], dtype=dtype, requires_grad=True)
    zero = torch.zeros(1, 1, dtype=dtype)
    action, log_prob = squashed_gaussian(mean, zero, zero)
    expected = -0.5 * math.log(2 * math.pi) - 2 * math.log(2) + 2 * abs(pre_tanh)
    assert float(log_prob.detach()) == pytest.approx(expected, rel=1e-6)
    assert float(action.detach().abs()) == pytest.approx(1)
    (slope,) = torch.autograd.grad(log_prob.sum(), mean)
    assert float(slope) == pytest.approx(2 * math.copysign(1, pre_tanh), rel=1e-5)


def test_squashed_gaussian_gradients_are_right() -> None:
    rng = np.random.default_rng(0)
    columns = [torch.from_numpy(rng.standard_normal((4, 2))).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(squashed_gaussian, columns)


def test_squashed_gaussian_density_integrates_to_one() -> None:
    mean, log_std = torch.tensor([[0.4]], dtype=torch.float64), torch.tensor([[-0.3]], dtype=torch.float64)
    noise = torch.linspace(-8, 8, 40_001, dtype=torch.float64)[:, None]
    actions, log_probs = squashed_gaussian(mean.expand_as(noise), log_std.expand_as(noise), noise)
    assert float(torch.trapezoid(log_probs.exp(), actions[:, 0])) == pytest.approx(1, abs=1e-6)
