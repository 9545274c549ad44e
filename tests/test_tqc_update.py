"""TQC: truncated mixtures, targets and losses against formulas written out by hand and against sb3-contrib."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from config_cases import refused
from gradient_oracles import SPACES, flat, gradients_of_step, recorded_batch, set_layers, tensor
from replay_helpers import BOX, disturb, make_batch, make_learner, oracle
from rl_training.algorithms.common.quantiles import quantile_midpoints
from rl_training.algorithms.tqc import tqc_actor_loss, tqc_loss, tqc_target, truncated_mixture


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_targets_and_loss_of_the_published_fixture() -> None:
    batch = make_batch(BOX, 1, 0)
    batch.rewards, batch.discounts = double([1.0]), double([0.9])
    atoms = truncated_mixture(double([[[1.0, 4.0, 2.0]], [[3.0, 0.0, 5.0]]]), 1)
    target = tqc_target(batch, atoms, double([-1.0]), double([0.5]))
    np.testing.assert_allclose(target.numpy(), [[1.45, 2.35, 3.25, 4.15]])
    quantiles = double([[[0.0, 1.0, 2.0]], [[1.0, 1.0, 1.0]]])
    loss, metrics = tqc_loss(quantiles, target, quantile_midpoints(3).double())
    assert loss.item() == pytest.approx(0.5963368, abs=1e-6)  # 1.78901 if it were a sum over quantiles
    assert set(metrics) == {"critic_loss", "q_mean", "target_q_mean"}


def test_the_pool_of_all_critics_is_cut_and_not_each_critic() -> None:
    quantiles = double([[[10.0, 11.0, 12.0]], [[2.0, 0.0, 1.0]]])
    assert truncated_mixture(quantiles, 1).tolist() == [[0.0, 1.0, 2.0, 10.0]]
    assert truncated_mixture(quantiles, 0).tolist() == [[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]]


def test_a_terminal_row_has_its_reward_as_every_atom() -> None:
    batch = make_batch(BOX, 2, 0)
    batch.rewards, batch.discounts = double([1.0, 2.0]), double([0.0, 0.9])
    target = tqc_target(batch, double([[1e30] * 3, [1.0] * 3]), double([1e30, 0.0]), double([1.0]))
    assert target.tolist() == [[1.0] * 3, [2.9] * 3]


def test_loss_equals_the_slow_formula() -> None:
    rng = np.random.default_rng(0)
    quantiles, target, weights = 2 * rng.normal(size=(3, 4, 5)), 2 * rng.normal(size=(4, 7)), rng.uniform(size=4)
    expected = 0.0
    for critic in range(3):
        for row in range(4):
            for number in range(5):
                for atom in range(7):
                    error, tau = target[row, atom] - quantiles[critic, row, number], (number + 0.5) / 5
                    huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                    expected += weights[row] * abs(tau - (error < 0)) * huber / (3 * 4 * 5 * 7)
    found, _ = tqc_loss(double(quantiles), double(target), quantile_midpoints(5).double(), double(weights))
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_gradients_are_right_by_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    quantiles = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q: tqc_loss(q, target, quantile_midpoints(4).double())[0], (quantiles,))
    log_probs = torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
    value = torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, p: tqc_actor_loss(v, p, double(0.3)), (value, log_probs))


@pytest.mark.parametrize("number", [0, 1])
def test_gradients_of_a_step_equal_those_of_another_library(number: int) -> None:
    case = oracle("tqc")["cases"][number]
    inputs, outputs = case["inputs"], case["outputs"]
    settings = {"temperature": inputs["alpha"], "num_quantiles": 5, "num_critics": len(inputs["critics"])}
    learner = make_learner("tqc", SPACES, model={"hidden_sizes": (4,)}, dropped_quantiles=inputs["dropped"], **settings)
    first, mean, log_std = inputs["actor"]
    set_layers(learner.model.policy_network, [first, [mean[i] + log_std[i] for i in range(2)]])
    set_layers(learner.model.critics, [layer for critic in inputs["critics"] for layer in critic])
    set_layers(learner.target.module.critics, [layer for critic in inputs["target_critics"] for layer in critic])
    batch = recorded_batch(inputs, inputs["gamma"])
    found = gradients_of_step(learner, batch, tensor(inputs["next_noise"]), tensor(inputs["noise"]))
    np.testing.assert_allclose(found["critic"], flat(outputs["critics"]), atol=2e-5)
    first, mean, log_std = outputs["actor"]
    actor = flat([*first, mean[0], log_std[0], mean[1], log_std[1]])
    np.testing.assert_allclose(found["actor"], actor, atol=2e-4)


def test_targets_come_from_the_target_critics_and_the_current_policy() -> None:
    outcomes = []
    for moved in (None, "target_policy", "target_critics"):
        learner = make_learner("tqc", BOX, actor_learning_rate=0.0, critic_learning_rate=0.0)
        with torch.no_grad():
            if moved == "target_policy":
                disturb(learner.target.module.policy_network)
            elif moved == "target_critics":
                for critic in learner.target.module.critics:
                    critic[-1].bias += 1.0
        outcomes.append(learner.update(make_batch(BOX, 32, 0))["target_q_mean"].item())
    assert outcomes[1] == outcomes[0]
    discount = make_batch(BOX, 32, 0).discounts.mean().item()
    assert outcomes[2] == pytest.approx(outcomes[0] + discount, abs=1e-5)


def test_fewer_dropped_quantiles_mean_higher_targets() -> None:
    targets = []
    for dropped in (0, 5, 24):
        learner = make_learner("tqc", BOX, dropped_quantiles=dropped)
        disturb(learner.target.module)
        targets.append(learner.update(make_batch(BOX, 32, 0))["target_q_mean"].item())
    assert targets[0] > targets[1] > targets[2]


def test_priorities_are_errors_of_the_mean() -> None:
    settings = {"prioritized": True, "critic_learning_rate": 0.0, "temperature": 0.2}
    learner, twin = (make_learner("tqc", BOX, **settings) for _ in range(2))
    disturb(learner.target.module.critics)
    batch = make_batch(BOX, 16, 0, weights=True)
    next_noise, _ = twin.step_inputs(batch)
    with torch.no_grad():
        next_actions, log_probs = learner.model.sample(batch.next_obs, next_noise)
        atoms = truncated_mixture(learner.target.module.quantiles(batch.next_obs, next_actions), 2)
        target = tqc_target(batch, atoms, log_probs, torch.tensor(0.2)).mean(1)
        expected = (learner.model.q_value(batch.obs, batch.actions) - target).abs()
    np.testing.assert_allclose(learner.update(batch).priorities, expected, atol=1e-5)


@pytest.mark.parametrize(("dropped", "quantiles"), [(25, 25), (4, 3)])
def test_more_dropped_quantiles_than_there_are_is_refused(dropped: int, quantiles: int) -> None:
    settings = {"dropped_quantiles": dropped, "num_quantiles": quantiles}
    message = refused({"algo": "tqc", "env_id": "Env-v0", "algo_kwargs": settings})
    reason = f"{dropped} must be below num_quantiles ({quantiles}), otherwise no target is left"
    assert message == f"algo_kwargs.dropped_quantiles: {reason}"
