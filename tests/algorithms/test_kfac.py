"""K-FAC: its factors and steps against explicit Fisher matrices, Kronecker products of NumPy and slow loops."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.kfac import KFACOptimizer, KroneckerFactors, kronecker_layers
from rl_training.algorithms.common.natural_gradient import fisher_product, flat_gradient
from rl_training.errors import ConfigError

OPTIONS: dict[str, Any] = {"damping": 0.05, "momentum": 0.0, "statistics_decay": 0.9, "inverse_every": 1}


def optimizer_of(model: nn.Module, known: Any = None, *, rate: float = 1.0, max_kl: float = 1e9, **options: Any) -> Any:
    optimizer = KFACOptimizer(model, known=known or {}, **{**OPTIONS, **options})
    optimizer.set_learning_rate(rate)
    optimizer.max_kl.fill_(max_kl)
    return optimizer


def linear_gaussian() -> tuple[nn.Linear, Tensor, Tensor]:
    """A linear model of the mean of a Gaussian of variance 1, inputs, and noise whose second moment is exactly I."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    inputs = torch.randn(5, 3).repeat_interleave(4, 0)
    noise = 2.0**0.5 * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).repeat(5, 1)
    return model, inputs, noise


def observed(optimizer: Any, model: nn.Module, inputs: Tensor, noise: Tensor) -> None:
    with optimizer.watching():
        outputs = model(inputs)
    optimizer.observe(0.5 * (outputs.detach() + noise - outputs).square().sum())


def explicit_fisher(model: nn.Module, inputs: Tensor) -> Tensor:
    """The Fisher matrix of the Gaussian, column by column: products that TRPO's tests compare with the Hessian."""
    parameters = list(model.parameters())
    mean_kl = 0.5 * (model(inputs) - model(inputs).detach()).square().sum(1).mean()
    product = fisher_product(mean_kl, parameters)
    size = sum(parameter.numel() for parameter in parameters)
    return torch.stack([product(row) for row in torch.eye(size)], 1)


def test_on_a_linear_gaussian_model_the_step_is_the_exact_natural_gradient() -> None:
    model, inputs, noise = linear_gaussian()
    fisher = explicit_fisher(model, inputs)
    loss = (model(inputs) - torch.randn(20, 2)).square().mean()
    gradient = flat_gradient(loss, list(model.parameters()))
    optimizer = optimizer_of(model)
    observed(optimizer, model, inputs, noise)
    direction, curvature = optimizer.natural(gradient)
    exact = torch.linalg.solve(fisher + 0.05 * torch.eye(len(fisher)), gradient)
    np.testing.assert_allclose(direction, exact, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(curvature, exact @ fisher @ exact, rtol=1e-3)


@pytest.mark.parametrize(("rate", "bound"), [(10.0, True), (1e-3, False)])
def test_a_step_moves_the_distribution_by_no_more_than_the_bound(rate: float, bound: bool) -> None:
    model, inputs, noise = linear_gaussian()
    old = copy.deepcopy(model)
    optimizer = optimizer_of(model, rate=rate, max_kl=0.01)
    observed(optimizer, model, inputs, noise)
    optimizer.step((model(inputs) - torch.randn(20, 2)).square().mean())
    with torch.no_grad():
        kl = float(0.5 * (model(inputs) - old(inputs)).square().sum(1).mean())  # exactly quadratic for this model
    assert kl == pytest.approx(float(optimizer.predicted_kl), rel=1e-3)
    assert kl == pytest.approx(0.01, rel=1e-3) if bound else kl < 0.01
    assert (float(optimizer.rate) < rate) == bound


def test_with_large_damping_a_step_is_that_of_gradient_descent() -> None:
    model, inputs, noise = linear_gaussian()
    twin = copy.deepcopy(model)
    target = torch.randn(20, 2)
    optimizer = optimizer_of(model, rate=1e8 * 0.1, damping=1e8)
    observed(optimizer, model, inputs, noise)
    optimizer.step((model(inputs) - target).square().mean())
    (twin(inputs) - target).square().mean().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert theirs.grad is not None
        np.testing.assert_allclose(mine.detach(), theirs.detach() - 0.1 * theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_the_inverse_is_that_of_the_kronecker_product(bias: bool) -> None:
    torch.manual_seed(1)
    factors = KroneckerFactors(nn.Linear(4, 3, bias=bias))
    rows, gradients = torch.randn(30, 4), torch.randn(30, 3)
    factors.observe([(rows, gradients)], 1.0)
    factors.decompose()
    columns = np.concatenate([rows, np.ones((30, 1))], 1) if bias else rows.numpy()
    inner, outer = columns.T @ columns / 30, gradients.numpy().T @ gradients.numpy() / 30
    matrix = torch.randn(3, columns.shape[1])
    fisher = np.kron(outer, inner)
    exact = np.linalg.solve(fisher + 0.1 * np.eye(len(fisher)), matrix.numpy().ravel())
    found, curvature = factors.natural(matrix, 0.1)
    np.testing.assert_allclose(found.ravel(), exact, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(curvature, exact @ fisher @ exact, rtol=1e-3)


def test_of_a_single_row_the_factors_give_the_exact_fisher_matrix_of_every_layer() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    inputs, noise = torch.randn(1, 3), torch.randn(1, 2)
    optimizer = optimizer_of(model)
    observed(optimizer, model, inputs, noise)
    outputs = model(inputs)
    score = torch.autograd.grad(0.5 * (outputs.detach() + noise - outputs).square().sum(), list(model.parameters()))
    for factors, (weight, bias) in zip(optimizer.factors, (score[:2], score[2:]), strict=True):
        column = torch.cat([weight, bias[:, None]], 1).ravel()
        fisher = np.kron(factors.outputs.numpy(), factors.inputs.numpy())
        np.testing.assert_allclose(fisher, torch.outer(column, column), atol=1e-5)


def test_the_factors_of_a_convolution_are_those_of_a_slow_loop_over_places() -> None:
    torch.manual_seed(3)
    layer = nn.Conv2d(2, 3, 2, stride=2, padding=1)
    images, gradients = torch.randn(4, 2, 4, 4), torch.randn(4, 3, 3, 3)
    factors = KroneckerFactors(layer)
    factors.observe([(images, gradients)], 1.0)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    inner, outer = np.zeros((9, 9)), np.zeros((3, 3))
    for row in range(4):
        for y in range(3):
            for x in range(3):
                patch = np.append(padded[row, :, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].ravel(), 1.0)
                inner += np.outer(patch, patch) / 4
                gradient = gradients[row, :, y, x].numpy()
                outer += np.outer(gradient, gradient) / (4 * 9)
    np.testing.assert_allclose(factors.inputs, inner, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(factors.outputs, outer, rtol=1e-5, atol=1e-6)


def test_a_convolution_with_one_place_is_a_linear_layer() -> None:
    torch.manual_seed(4)
    conv, linear = nn.Conv2d(2, 3, 3), nn.Linear(18, 3)
    images, gradients = torch.randn(6, 2, 3, 3), torch.randn(6, 3)
    answers = []
    for layer, inputs, outputs in ((conv, images, gradients[..., None, None]), (linear, images.flatten(1), gradients)):
        factors = KroneckerFactors(layer)
        factors.observe([(inputs, outputs)], 1.0)
        factors.decompose()
        answers.append(factors.natural(torch.ones(3, 19), 0.1)[0])
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-5)


def test_a_layer_on_a_sequence_is_a_convolution_of_one_pixel() -> None:
    torch.manual_seed(5)
    conv, linear = nn.Conv2d(4, 3, 1), nn.Linear(4, 3)
    parts, gradients = torch.randn(6, 5, 4), torch.randn(6, 5, 3)
    found = [KroneckerFactors(layer) for layer in (conv, linear)]
    found[0].observe([(parts.movedim(-1, 1)[..., None], gradients.movedim(-1, 1)[..., None])], 1.0)
    found[1].observe([(parts, gradients)], 1.0)
    for name in ("inputs", "outputs"):
        np.testing.assert_allclose(*(getattr(factors, name) for factors in found), rtol=1e-5, atol=1e-6)


def test_factors_are_a_mean_at_first_and_decay_later_and_bases_wait() -> None:
    model, inputs, noise = linear_gaussian()
    optimizer = optimizer_of(model, statistics_decay=0.7, inverse_every=3)
    seen, bases = [], []
    for number in range(7):
        scaled = inputs * (number + 1)
        observed(optimizer, model, scaled, noise)
        optimizer.step(model(inputs).sum())
        seen.append(float(optimizer.factors[0].inputs[0, 0]))
        bases.append(optimizer.factors[0].input_values.clone())
    first = seen[0]
    expected = [first, first * (1 + 4) / 2, first * (1 + 4 + 9) / 3]
    for number in range(3, 7):  # a new batch has at least 0.3
        expected.append(0.7 * expected[-1] + 0.3 * (number + 1) ** 2 * first)
    np.testing.assert_allclose(seen, expected, rtol=1e-5)
    changed = [not torch.equal(*pair) for pair in itertools.pairwise(bases)]
    assert changed == [True, True, True, False, False, True], "renewed at first, and then every third time"


def test_momentum_averages_steps_and_a_known_parameter_has_its_own_curvature() -> None:
    class WithDeviation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_std = nn.Linear(3, 2), nn.Parameter(torch.zeros(2))

    model = WithDeviation()
    optimizer = optimizer_of(model, {model.log_std: 2.0}, rate=1.0, momentum=0.75)
    before = model.log_std.detach().clone()
    for expected in (0.25, 0.25 + 0.25 + 0.75 * 0.25):
        optimizer.step(model.log_std.sum() + 0.0 * model.mean(torch.ones(1, 3)).sum())
        moved = (before - model.log_std.detach()) * (2.0 + 0.05)
        np.testing.assert_allclose(moved, expected, rtol=1e-5)


def test_momentum_is_that_of_steps_and_not_of_directions() -> None:
    """A step that the bound has made short stays short in the average: rates 1 and 0.1 here."""
    model, inputs, noise = linear_gaussian()
    optimizer = optimizer_of(model, momentum=0.75)
    observed(optimizer, model, inputs, noise)
    before, moved, expected = optimizer.vector.clone(), torch.zeros(8), torch.zeros(8)
    for rate in (1.0, 0.1):
        optimizer.set_learning_rate(rate)
        gradient = flat_gradient((model(inputs) - 1.0).square().mean(), list(model.parameters()))
        moved = 0.75 * moved + 0.25 * rate * optimizer.natural(gradient)[0]
        expected = expected + moved
        optimizer.apply(gradient)
    np.testing.assert_allclose(before - optimizer.vector, expected, rtol=1e-4, atol=1e-6)


def test_the_curvature_is_that_of_the_factors_of_now_also_where_the_bases_are_old() -> None:
    """Factors that grow between two decompositions make a step shorter at once."""
    model, inputs, noise = linear_gaussian()
    optimizer = optimizer_of(model, inverse_every=100)
    optimizer.steps.fill_(100)
    observed(optimizer, model, inputs, noise)  # decomposes
    optimizer.steps.fill_(101)
    observed(optimizer, model, 5.0 * inputs, noise)  # does not
    factors = optimizer.factors[0]
    assert not torch.allclose(factors.input_values, torch.linalg.eigvalsh(factors.inputs), rtol=0.1)
    gradient = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    direction, curvature = factors.natural(gradient, 0.05)
    fisher = np.kron(factors.outputs.numpy(), factors.inputs.numpy())
    np.testing.assert_allclose(curvature, direction.numpy().ravel() @ fisher @ direction.numpy().ravel(), rtol=1e-4)


def test_a_known_parameter_counts_in_the_bound() -> None:
    class Deviation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_std = nn.Linear(1, 1), nn.Parameter(torch.zeros(2))

    model = Deviation()
    optimizer = optimizer_of(model, {model.log_std: 2.0}, rate=100.0, max_kl=0.01)
    optimizer.step(model.log_std.sum() + 0.0 * model.mean(torch.ones(1, 1)).sum())
    # 1/2 x^T F x with F = 2 I and two equal entries: their square is half the bound.
    np.testing.assert_allclose(model.log_std.detach(), [-(0.005**0.5)] * 2, rtol=1e-4)


def test_a_layer_that_is_called_twice_has_the_sum_of_both_fisher_matrices() -> None:
    model, inputs, noise = linear_gaussian()
    fishers = []
    for calls in (1, 2):
        optimizer = optimizer_of(model)
        with optimizer.watching():
            outputs = [model(inputs) for _ in range(calls)]
        optimizer.observe(sum(0.5 * (each.detach() + noise - each).square().sum() for each in outputs))
        fishers.append(np.kron(optimizer.factors[0].outputs.numpy(), optimizer.factors[0].inputs.numpy()))
    np.testing.assert_allclose(fishers[1], 2.0 * fishers[0], rtol=1e-5)


def test_gradients_are_clipped_before_they_are_divided() -> None:
    moved = []
    for limit in (None, 0.1):
        model, inputs, noise = linear_gaussian()
        optimizer = optimizer_of(model, max_grad_norm=limit)
        observed(optimizer, model, inputs, noise)
        before = optimizer.vector.clone()
        norm = optimizer.step((model(inputs) - 1.0).square().mean())
        moved.append(before - optimizer.vector)
    assert float(norm) > 0.2
    np.testing.assert_allclose(moved[1], moved[0] * (0.1 / norm), rtol=1e-3, atol=1e-6)


def test_factors_that_are_not_finite_keep_the_bases_and_no_eigenvalue_is_negative() -> None:
    factors = KroneckerFactors(nn.Linear(6, 2))
    row = 1e3 * torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    factors.observe([(row, torch.ones(1, 2))], 1.0)  # of rank one: rounding puts eigenvalues on both sides of 0
    factors.decompose()
    assert float(torch.linalg.eigvalsh(factors.inputs).min()) < 0.0 <= float(factors.input_values.min())
    basis = factors.input_basis.clone()
    factors.inputs[0, 0] = float("nan")
    factors.decompose()
    assert torch.equal(factors.input_basis, basis)


def test_factors_that_lapack_gives_up_on_are_decomposed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so in float32 on some of low rank, such as those of a wide layer behind an image."""
    decompose = torch.linalg.eigh

    def fragile(matrix: Tensor) -> Any:
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("failed to converge")
        return decompose(matrix)

    torch.manual_seed(6)
    usual, rescued = KroneckerFactors(nn.Linear(4, 3)), KroneckerFactors(nn.Linear(4, 3))
    for factors in (usual, rescued):
        factors.observe([(torch.arange(24.0).reshape(6, 4).sin(), torch.arange(18.0).reshape(6, 3).cos())], 1.0)
    usual.decompose()
    monkeypatch.setattr(torch.linalg, "eigh", fragile)
    rescued.decompose()
    gradient = torch.ones(3, 5)
    assert rescued.input_basis.dtype == torch.float32
    torch.testing.assert_close(rescued.natural(gradient, 0.1), usual.natural(gradient, 0.1), rtol=1e-4, atol=1e-5)


def test_layers_are_watched_only_when_asked() -> None:
    """A hook that stays would keep every batch of a run."""
    model, inputs, noise = linear_gaussian()
    optimizer = optimizer_of(model)
    observed(optimizer, model, inputs, noise)
    assert not model._forward_hooks
    with pytest.raises(AssertionError, match="not watched"):
        optimizer.observe(model(inputs).sum())


def test_state_in_the_middle_of_a_cycle_continues_to_the_bit() -> None:
    """Bases are older than factors here: without them, a restored optimizer would take another step."""
    model, inputs, noise = linear_gaussian()
    optimizer = optimizer_of(model, inverse_every=5, momentum=0.9)
    twin = copy.deepcopy(model)
    other = optimizer_of(twin, inverse_every=5, momentum=0.9)

    def work(optimizer: Any, model: nn.Module, scale: float) -> None:
        observed(optimizer, model, inputs * scale, noise)
        optimizer.step((model(inputs) - 1.0).square().mean())

    for number in range(7):
        work(optimizer, model, 1.0 + number)
    twin.load_state_dict(model.state_dict())
    state = copy.deepcopy(optimizer.state_dict())
    assert not torch.equal(state["layer_0_input_values"], torch.linalg.eigvalsh(state["layer_0_inputs"]))
    other.load_state_dict(state)
    for number in range(4):
        for each, network in ((optimizer, model), (other, twin)):
            work(each, network, 5.0 - number)
        assert all(torch.equal(*pair) for pair in zip(model.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.LayerNorm(4), "LayerNorm"),
        (nn.LSTM(4, 4), "LSTM"),
        (nn.Conv2d(4, 4, 3, groups=2), "Conv2d"),
        (nn.Conv2d(4, 4, 3, padding="same"), "Conv2d"),
        (nn.Embedding(3, 4), "Embedding"),
    ],
)
def test_a_layer_that_it_does_not_know_is_refused_in_one_line(layer: nn.Module, name: str) -> None:
    with pytest.raises(ConfigError, match=f"K-FAC knows linear and convolutional layers, but not {name}") as caught:
        kronecker_layers(nn.Sequential(nn.Linear(4, 4), layer), {})
    assert "\n" not in str(caught.value)


def test_frozen_layers_stay_and_the_others_step_as_if_they_were_alone() -> None:
    model, inputs, noise = linear_gaussian()
    frozen, norm = nn.Linear(3, 3), nn.LayerNorm(3)
    whole = nn.Sequential(frozen.requires_grad_(False), norm.requires_grad_(False), model)
    assert kronecker_layers(whole, {}) == [model]
    vectors = []
    for network, rows in ((whole, inputs), (model, norm(frozen(inputs)))):
        optimizer = optimizer_of(network)
        observed(optimizer, network, rows, noise)
        vectors.append(optimizer.natural(torch.arange(8.0))[0])
    torch.testing.assert_close(*vectors)


def test_a_layer_may_be_called_with_a_named_input() -> None:
    model, inputs, noise = linear_gaussian()
    vectors = []
    for call in (model, lambda rows: model(input=rows)):
        optimizer = optimizer_of(model)
        with optimizer.watching():
            outputs = call(inputs)
        optimizer.observe(0.5 * (outputs.detach() + noise - outputs).square().sum())
        vectors.append(optimizer.natural(torch.arange(8.0))[0])
    torch.testing.assert_close(*vectors)


def test_what_it_cannot_watch_or_share_is_refused_in_one_line() -> None:
    model, inputs, _ = linear_gaussian()
    optimizer = optimizer_of(model)
    with optimizer.watching():
        outputs = nn.functional.linear(inputs, model.weight, model.bias)
    with pytest.raises(ConfigError, match=r"has seen no call of Linear\(.*; call the layer itself"):
        optimizer.observe(outputs.sum())
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    with pytest.raises(ConfigError, match="cannot train a weight that two layers share"):
        kronecker_layers(tied, {})
    half = nn.Linear(3, 3)
    half.bias.requires_grad_(False)
    with pytest.raises(ConfigError, match="cannot train a part of Linear; freeze all of its parameters, or none"):
        kronecker_layers(half, {})
