"""Optimizer, target network and averages of metrics, against torch's own, recorded and hand-made numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from on_policy_helpers import make_learner, oracle_cases, parameters_of
from rl_training.algorithms.common.metrics import mean_metrics
from rl_training.algorithms.common.optimizer import Optimizer, flatten_parameters
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.models.encoders.normalizer import ObservationNormalizer


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def some_loss(module: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    return (module(inputs) - step).square().mean()


@pytest.mark.parametrize("epsilon", [1e-8, 1e-5, 1e-2])
@pytest.mark.parametrize("max_grad_norm", [None, 0.5, 100.0])
def test_adam_equals_torch_over_many_steps(epsilon: float, max_grad_norm: float | None) -> None:
    ours, theirs = network(), network()
    optimizer = Optimizer(ours.parameters(), epsilon=epsilon, max_grad_norm=max_grad_norm)
    reference = torch.optim.Adam(theirs.parameters(), eps=epsilon)
    for step in range(20):
        rate = 0.01 / (step + 1)
        optimizer.set_learning_rate(rate)
        norm = optimizer.step(some_loss(ours, step))
        reference.param_groups[0]["lr"] = rate
        reference.zero_grad()
        some_loss(theirs, step).backward()
        limit = math.inf if max_grad_norm is None else max_grad_norm
        expected_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), limit)
        reference.step()
        torch.testing.assert_close(norm, expected_norm)
    torch.testing.assert_close(parameters_of(ours), parameters_of(theirs), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9), (0.0, 0.97)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["adam", "radam"])
def test_betas_decay_and_radam_equal_torch_over_many_steps(
    kind: Any, betas: tuple[float, float], weight_decay: float
) -> None:
    """In float64. RAdam starts to adapt within the steps (after 5 for a second beta of 0.999)."""
    ours, theirs = network(), network()
    optimizer = Optimizer(ours.parameters(), kind=kind, betas=betas, weight_decay=weight_decay)
    reference: torch.optim.Optimizer = torch.optim.AdamW(theirs.parameters(), betas=betas, weight_decay=weight_decay)
    if kind == "radam":
        reference = torch.optim.RAdam(
            theirs.parameters(), betas=betas, weight_decay=weight_decay, decoupled_weight_decay=True
        )
    for step in range(30):
        rate = 0.1 / (step + 1)
        optimizer.set_learning_rate(rate)
        optimizer.step(some_loss(ours, step))
        reference.param_groups[0]["lr"] = rate
        reference.zero_grad()
        some_loss(theirs, step).backward()
        reference.step()
        torch.testing.assert_close(parameters_of(ours), parameters_of(theirs), rtol=1e-9, atol=1e-11)
    assert optimizer.first_moment.shape == optimizer.second_moment.shape == optimizer.vector.shape


def test_rmsprop_equals_the_recorded_tensorflow_form() -> None:
    [(inputs, outputs)] = oracle_cases("rmsprop")
    parameter = nn.Parameter(torch.from_numpy(inputs["start"].copy()))
    optimizer = Optimizer([parameter], kind="rmsprop", epsilon=inputs["epsilon"], decay=inputs["decay"])
    optimizer.set_learning_rate(inputs["learning_rate"])
    for gradient, expected in zip(inputs["gradients"], outputs["parameters"], strict=True):
        optimizer.apply(torch.from_numpy(gradient))
        np.testing.assert_allclose(parameter.detach(), expected, rtol=1e-12)


def test_one_rmsprop_step_by_hand() -> None:
    """Second moment .9 * 1 + .1 * 2^2 = 1.3, step .1 * 2 / sqrt(1.3 + .5): epsilon is inside the root."""
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = Optimizer([parameter], kind="rmsprop", epsilon=0.5, decay=0.9)
    optimizer.set_learning_rate(0.1)
    optimizer.apply(torch.tensor([2.0], dtype=torch.float64))
    assert parameter.item() == pytest.approx(1 - 0.2 / math.sqrt(1.8), abs=1e-12)


def test_first_adam_step_by_hand() -> None:
    """Bias correction makes it lr * g / (|g| + epsilon)."""
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = Optimizer([parameter], epsilon=0.5)
    optimizer.set_learning_rate(0.1)
    optimizer.apply(torch.tensor([2.0], dtype=torch.float64))
    assert parameter.item() == pytest.approx(1 - 0.1 * 2 / 2.5, abs=1e-12)


def test_clipping_is_by_the_norm_of_all_parameters_together() -> None:
    """The second moment of Adam's first step is .001 g^2: it shows the gradient after the clip."""
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    optimizer = Optimizer(parameters, max_grad_norm=0.5)
    norm = optimizer.apply(torch.tensor([3.0, 0.0, 4.0]))
    clipped = (optimizer.second_moment / 0.001).sqrt()
    assert norm == 5
    assert torch.linalg.vector_norm(clipped) == pytest.approx(0.5, abs=1e-6)
    torch.testing.assert_close(clipped, torch.tensor([0.3, 0.0, 0.4]))


def test_a_small_gradient_is_not_scaled_up() -> None:
    optimizer = Optimizer([nn.Parameter(torch.zeros(2))], max_grad_norm=0.5)
    optimizer.apply(torch.tensor([0.03, 0.04]))
    torch.testing.assert_close((optimizer.second_moment / 0.001).sqrt(), torch.tensor([0.03, 0.04]))


def test_flat_parameters_are_views_in_order() -> None:
    module = network()
    expected = parameters_of(module)
    flat = flatten_parameters(module.parameters())
    assert torch.equal(flat, expected)
    flat += 1
    assert torch.equal(parameters_of(module), expected + 1)


def test_parameters_that_lie_side_by_side_stay_where_they_are() -> None:
    module = network()
    parameters = list(module.parameters())
    whole = flatten_parameters(parameters)
    front, back = flatten_parameters(parameters[:2]), flatten_parameters(parameters[2:])
    whole += 1
    front += 1
    back += 1
    assert torch.equal(parameters_of(module), parameters_of(network()) + 1 + 1)
    assert (len(front), len(back)) == (20, 12)


@pytest.mark.parametrize("pick", [[1, 0], [0, 2], [3, 2, 1, 0]])
def test_parameters_in_another_order_or_with_gaps_are_gathered_anew(pick: list[int]) -> None:
    module = network()
    parameters = list(module.parameters())
    flatten_parameters(parameters)
    chosen = [parameters[index] for index in pick]
    before = [p.detach().clone() for p in chosen]
    flat = flatten_parameters(chosen)
    flat += 1
    assert all(torch.equal(p, b + 1) for p, b in zip(chosen, before, strict=True))


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_optimizer_state_round_trip_continues_exactly(kind: str) -> None:
    first, second = network(), network()
    one = Optimizer(first.parameters(), kind=kind)  # type: ignore[arg-type]
    one.set_learning_rate(0.01)
    for step in range(3):
        one.step(some_loss(first, step))
    second.load_state_dict(first.state_dict())
    other = Optimizer(second.parameters(), kind=kind)  # type: ignore[arg-type]
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    for step in range(3, 6):
        one.step(some_loss(first, step))
        other.step(some_loss(second, step))
    assert torch.equal(parameters_of(first), parameters_of(second))


def test_a_state_without_powers_of_the_decays_gets_them_from_its_steps() -> None:
    """As checkpoints had it before the powers were kept."""
    first, second = network(), network()
    one, other = Optimizer(first.parameters()), Optimizer(second.parameters())
    one.set_learning_rate(0.01)
    for step in range(5):
        one.step(some_loss(first, step))
    torch.testing.assert_close(one.powers, torch.tensor([0.9**5, 0.999**5], dtype=torch.float64))
    second.load_state_dict(first.state_dict())
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items() if name != "powers"})
    torch.testing.assert_close(other.powers, one.powers)
    one.step(some_loss(first, 5))
    other.step(some_loss(second, 5))
    torch.testing.assert_close(parameters_of(first), parameters_of(second))


def test_optimizer_refuses_the_state_of_another_model() -> None:
    small = Optimizer([nn.Parameter(torch.zeros(2))])
    with pytest.raises(ValueError, match=r"optimizer first_moment has .*2.* needs .*3"):
        Optimizer([nn.Parameter(torch.zeros(3))]).load_state_dict(small.state_dict())


def test_a_loaded_model_keeps_its_place_in_the_flat_vector() -> None:
    module, other = network(0), network(1)
    optimizer = Optimizer(module.parameters())
    module.load_state_dict(other.state_dict())
    assert torch.equal(optimizer.vector, parameters_of(other))


def test_target_network_follows_by_tau() -> None:
    online = network(0)
    target = TargetNetwork(online)
    before = parameters_of(online)
    Optimizer(online.parameters()).vector.add_(1.0)
    assert torch.equal(parameters_of(target.module), before)
    target.follow(0.25)
    torch.testing.assert_close(parameters_of(target.module), before + 0.25)
    target.follow()
    assert torch.equal(parameters_of(target.module), parameters_of(online))


def test_target_network_is_frozen_and_apart() -> None:
    online = network(0)
    target = TargetNetwork(online)
    assert not any(p.requires_grad for p in target.module.parameters())
    assert all(p.requires_grad for p in online.parameters())
    target.follow(0.5)
    storages = {p.untyped_storage().data_ptr() for p in online.parameters()}
    assert not storages & {p.untyped_storage().data_ptr() for p in target.module.parameters()}


def test_target_network_sees_through_the_same_statistics() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normalizer = ObservationNormalizer((3,), 10.0)
            self.head = nn.Linear(3, 1)

    online = Model()
    target = TargetNetwork(online)
    online.normalizer.update(np.random.default_rng(0).standard_normal((9, 3)) + 5)
    obs = torch.ones(1, 3)
    assert torch.equal(target.module.normalizer(obs), online.normalizer(obs))


def test_target_network_state_round_trip() -> None:
    first, second = TargetNetwork(network(0)), TargetNetwork(network(1))
    second.load_state_dict(first.state_dict())
    assert torch.equal(parameters_of(first.module), parameters_of(second.module))


def test_metrics_are_averaged_over_the_updates_that_have_them() -> None:
    history = [{"a": torch.tensor(1.0)}, {"a": torch.tensor(3.0), "b": torch.tensor(5.0)}]
    found = mean_metrics(history)
    assert {name: value.item() for name, value in found.items()} == {"a": 2.0, "b": 5.0}
    assert mean_metrics([]) == {}


@pytest.mark.parametrize(
    ("algo", "settings", "kind", "epsilon"),
    [
        ("ppo", {}, "adam", 1e-5),
        ("ppo", {"adam_epsilon": 1e-3}, "adam", 1e-3),
        ("a2c", {}, "rmsprop", 1e-5),
        ("a2c", {"optimizer": "adam", "optimizer_epsilon": 1e-7}, "adam", 1e-7),
    ],
)
def test_learners_set_up_their_optimizer_as_configured(
    algo: str, settings: dict[str, object], kind: str, epsilon: float
) -> None:
    optimizer = make_learner(algo, max_grad_norm=0.7, **settings).optimizer
    assert (optimizer.kind, optimizer.epsilon, optimizer.max_grad_norm) == (kind, epsilon, 0.7)


def test_a2c_passes_its_decay_on() -> None:
    assert make_learner("a2c", rmsprop_decay=0.5).optimizer.decay == 0.5
