"""NAF: the parabola over actions, its targets and its updates, against formulas written out by hand and scipy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from replay_helpers import (
    BOX,
    OBSERVATIONS,
    assert_same_parameters,
    disturb,
    make_batch,
    make_learner,
    oracle,
    plain_copy,
    snapshot,
    soft_update,
)
from rl_training.algorithms import naf as naf_module
from rl_training.algorithms.naf import naf_loss, naf_target
from rl_training.config.train_config import ModelConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_naf import LOG_DIAGONAL_LIMIT, MLPNAFModel

SIZES = [1, 2, 3, 4]


def box(size: int) -> Spaces:
    return Spaces(OBSERVATIONS, gym.spaces.Box(-2.0, 3.0, (size,), np.float32))


def make_model(size: int, seed: int = 0, **settings: Any) -> MLPNAFModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MLPNAFModel(box(size), ModelConfig(hidden_sizes=(16,), **settings)).double()
    disturb(model, seed)
    return model


def fix_outputs(model: MLPNAFModel, outputs: list[float]) -> None:
    """Make the network say `outputs` (mean before tanh, entries row by row, value) at every observation."""
    last: Any = model.network[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor(outputs))


def slow_q(model: MLPNAFModel, obs: Tensor, action: Tensor) -> float:
    """V - 1/2 (a - mu)^T P (a - mu) of one row, with P built as a matrix by a double loop."""
    size = model.action_dim
    outputs = model.network(obs).detach().numpy()
    mean, entries, value = np.tanh(outputs[:size]), list(outputs[size:-1]), outputs[-1]
    factor = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            entry = entries.pop(0)
            factor[i, j] = np.exp(entry) if i == j else entry
    away = action.numpy() - mean
    return float(value - 0.5 * away @ (factor @ factor.T) @ away)


def random_rows(size: int, count: int = 40) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(size)
    return torch.from_numpy(rng.normal(size=(count, 3))), torch.from_numpy(rng.uniform(-1, 1, (count, size)))


@pytest.mark.parametrize("size", SIZES)
def test_q_equals_the_formula_with_an_explicit_matrix(size: int) -> None:
    model = make_model(size)
    obs, actions = random_rows(size)
    expected = [slow_q(model, o, a) for o, a in zip(obs, actions, strict=True)]
    np.testing.assert_allclose(model.q_values(obs, actions).detach(), expected, rtol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_precision_is_symmetric_and_positive_definite(size: int) -> None:
    model = make_model(size)
    factor = model.act_with_factor(random_rows(size)[0].numpy())[1]
    assert factor.shape == (40, size, size)
    assert (np.triu(factor, 1) == 0).all()
    assert (np.diagonal(factor, axis1=1, axis2=2) > 0).all()
    precision = factor @ factor.transpose(0, 2, 1)
    np.testing.assert_allclose(precision, precision.transpose(0, 2, 1), rtol=1e-12)
    assert np.linalg.eigvalsh(precision).min() > 0
    # It is one matrix per state, with every entry in use.
    assert np.linalg.matrix_rank(factor[(slice(None), *np.tril_indices(size))]) == size * (size + 1) // 2


@pytest.mark.parametrize("size", SIZES)
def test_the_best_action_is_the_mean_and_its_worth_is_the_state_value(size: int) -> None:
    model = make_model(size)
    obs, actions = random_rows(size, 400)
    with torch.no_grad():
        mean, values = model.actor(obs), model.state_values(obs)
        assert mean.shape == (400, size) and mean.abs().max() <= 1.0
        torch.testing.assert_close(model.q_values(obs, mean), values, rtol=0, atol=0)
        assert (model.q_values(obs, actions) < values).all()
        nudged = mean + 1e-3 * torch.sign(actions)
        assert (model.q_values(obs, nudged) < values).all()
    at_mean = mean.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model.q_values(obs, at_mean).sum(), at_mean)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def test_advantage_of_a_case_done_by_hand() -> None:
    model = make_model(2)
    # L = [[1, 0], [1, 2]]: the diagonal is given by its logarithm. L^T (1, 1) = (2, 2), so A = -1/2 (4 + 4).
    fix_outputs(model, [0.0, 0.0, 0.0, 1.0, np.log(2.0), 7.0])
    obs = torch.zeros(1, 3, dtype=torch.float64)
    np.testing.assert_allclose(model.act_with_factor(obs.numpy())[1][0], [[1.0, 0.0], [1.0, 2.0]])
    away = torch.ones(1, 2, dtype=torch.float64)
    assert model.q_values(obs, away).item() - model.state_values(obs).item() == pytest.approx(-4.0)
    # The order matters: L L^T, not L^T L, which would give -1/2 (1 + 9) = -5.
    assert model.state_values(obs).item() == 7.0


@pytest.mark.parametrize("case", oracle("naf")["cases"], ids=lambda case: f"{len(case['inputs']['mean'])} dimensions")
def test_advantages_equal_the_log_density_of_scipys_gaussian(case: dict[str, Any]) -> None:
    inputs = {name: np.array(value) for name, value in case["inputs"].items()}
    size = len(inputs["mean"])
    factor = inputs["factor"].copy()
    np.fill_diagonal(factor, np.log(np.diagonal(factor)))
    model = make_model(size)
    fix_outputs(model, [*np.arctanh(inputs["mean"]), *factor[np.tril_indices(size)], -3.0])
    actions = torch.from_numpy(inputs["actions"])
    obs = torch.zeros(len(actions), 3, dtype=torch.float64)
    advantages = model.q_values(obs, actions) - model.state_values(obs)
    np.testing.assert_allclose(advantages.detach(), case["outputs"]["advantages"], rtol=1e-6, atol=1e-12)


def test_a_runaway_diagonal_stays_finite_and_positive() -> None:
    model = make_model(1).float()
    obs, action = torch.zeros(1, 3), torch.ones(1, 1)
    for raw, limit in ((1e6, LOG_DIAGONAL_LIMIT), (-1e6, -LOG_DIAGONAL_LIMIT)):
        fix_outputs(model, [0.0, raw, 0.0])
        assert model.act_with_factor(obs.numpy())[1].item() == pytest.approx(np.exp(limit), rel=1e-5)
        assert torch.isfinite(model.q_values(obs, action)).all()


def test_gradient_is_right_by_finite_differences() -> None:
    model = make_model(2, activation="tanh")
    obs, actions = random_rows(2, 4)
    names = [name for name, _ in model.named_parameters()]

    def of_parameters(*values: Tensor) -> Tensor:
        arguments = dict(zip(names, values, strict=True))
        q_values = torch.func.functional_call(Objective(model), {f"model.{n}": v for n, v in arguments.items()}, ())
        return naf_loss(q_values, torch.zeros(4, dtype=torch.float64))[0]

    class Objective(torch.nn.Module):
        def __init__(self, inner: MLPNAFModel):
            super().__init__()
            self.model = inner

        def forward(self) -> Tensor:
            return self.model.q_values(obs, actions)

    assert torch.autograd.gradcheck(of_parameters, [p.detach().clone().requires_grad_() for p in model.parameters()])


def test_target_multiplies_discount_and_value_and_is_the_reward_alone_after_termination() -> None:
    # A plus sign in place of the product would give 1 + 0.9 + 2 and 0.7 + 0 + 2.
    target = naf_target(torch.tensor([1.0, 0.7]), torch.tensor([0.9, 0.0]), torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(target, torch.tensor([2.8, 0.7]), rtol=1e-6, atol=1e-6)
    assert target[1].item() == torch.tensor(0.7).item()


def test_loss_and_its_metrics_of_a_case_done_by_hand() -> None:
    q_values = torch.tensor([1.0, 3.0], requires_grad=True)
    loss, metrics = naf_loss(q_values, torch.tensor([2.0, 0.0]))
    assert loss.item() == (1 + 9) / 2
    assert naf_loss(q_values, torch.tensor([2.0, 0.0]), torch.tensor([0.5, 1.0]))[0].item() == (0.5 + 9) / 2
    assert {name: value.item() for name, value in metrics.items()} == {"loss": 5.0, "q_mean": 2.0, "target_q_mean": 1.0}
    assert not any(value.requires_grad for value in metrics.values())


class ReferenceNAF:
    """Row by row, with an ordinary network and torch.optim.Adam."""

    def __init__(self, learner: Any, settings: dict[str, Any]):
        self.settings, self.size = settings, learner.model.action_dim
        self.network = plain_copy(learner.model.network)
        self.target = plain_copy(learner.target.module.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings["learning_rate"])

    def q_value(self, obs: Tensor, action: Tensor) -> Tensor:
        outputs = self.network(obs)
        mean, entries = torch.tanh(outputs[: self.size]), list(outputs[self.size : -1])
        rows = []
        for i in range(self.size):
            lower = [entries.pop(0) for _ in range(i)] + [entries.pop(0).exp()]
            rows.append(torch.stack([*lower, *[torch.tensor(0.0)] * (self.size - i - 1)]))
        factor = torch.stack(rows)
        away = action - mean
        return outputs[-1] - away @ factor @ factor.T @ away / 2

    def update(self, batch: Transitions) -> list[float]:
        losses, errors = [], []
        for b in range(len(batch)):
            weight = 1.0 if batch.weights is None else batch.weights[b]
            y = float(batch.rewards[b] + batch.discounts[b] * self.target(batch.next_obs[b])[-1].detach())
            error = self.q_value(batch.obs[b], batch.actions[b]) - y
            losses.append(weight * error**2)
            errors.append(abs(error.item()))
        self.optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        if self.settings.get("max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings["max_grad_norm"])
        self.optimizer.step()
        soft_update(self.target, self.network, self.settings["tau"])
        return errors


@pytest.mark.parametrize(
    "case",
    [{}, {"prioritized": True, "n_step": 3}, {"max_grad_norm": 0.05}],
    ids=lambda case: "+".join(f"{key}={value}" for key, value in case.items()) or "plain",
)
def test_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    settings = {"tau": 0.1, "learning_rate": 3e-3} | case
    learner = make_learner("naf", BOX, **settings)
    disturb(learner.target.module)  # so that V of the online network is no answer
    reference = ReferenceNAF(learner, settings)
    for number in range(4):
        weighted = case.get("prioritized", False)
        batch = make_batch(BOX, 16, number, weights=weighted, n_step=case.get("n_step", 1))
        result = learner.update(batch)
        errors = reference.update(batch)
        if weighted:
            np.testing.assert_allclose(result.priorities, errors, atol=1e-5)
        else:
            assert result.priorities is None
        assert_same_parameters(learner.model.network, reference.network)
        assert_same_parameters(learner.target.module.network, reference.target)
    assert learner.updates == 4


def test_metrics_of_an_update_are_named_and_finite() -> None:
    result = make_learner("naf", BOX).update(make_batch(BOX, 8, 0))
    assert set(result) == {"loss", "q_mean", "target_q_mean", "grad_norm"}
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_no_gradient_reaches_the_target_and_fresh_targets_are_equal_but_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("naf", BOX)
    torch.testing.assert_close(snapshot(learner.target.module), snapshot(learner.model), rtol=0, atol=0)
    storages = {p.untyped_storage().data_ptr() for p in learner.model.parameters()}
    assert storages.isdisjoint(p.untyped_storage().data_ptr() for p in learner.target.module.parameters())
    seen: list[Tensor] = []

    def spy(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> Any:
        seen.append(target)
        return naf_loss(q_values, target, weights)

    monkeypatch.setattr(naf_module, "naf_loss", spy)
    learner.update(make_batch(BOX, 8, 0))
    assert len(seen) == 1 and seen[0].shape == (8,) and not seen[0].requires_grad
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())


def test_the_learning_rate_follows_its_schedule() -> None:
    learner = make_learner("naf", BOX, learning_rate={"start": 1e-2, "end": 0.0, "over": 10})
    before = snapshot(learner.model)
    for env_steps, moves in ((10, False), (9, True)):
        learner.clock.env_steps = env_steps
        learner.update(make_batch(BOX, 8, 0))
        assert torch.equal(snapshot(learner.model), before) is not moves


@pytest.mark.parametrize("size", [1, 3])
def test_precision_noise_has_the_covariance_of_the_inverse_precision(size: int) -> None:
    learner = make_learner("naf", box(size), noise_type="precision", exploration_noise=0.05)
    row = np.array([[0.3, -0.2, 0.1]], np.float32)
    obs = np.tile(row, (40_000, 1))
    still = learner.act(obs, explore=False).actions
    noise = learner.act(obs, explore=True).actions - still
    factor = learner.model.act_with_factor(row)[1][0].astype(np.float64)
    expected = 0.05**2 * np.linalg.inv(factor @ factor.T)
    np.testing.assert_allclose(np.cov(noise.T).reshape(size, size), expected, atol=0.03 * expected.max())
    assert np.abs(noise.mean(0)).max() < 0.003


def test_precision_noise_is_wide_where_q_is_flat() -> None:
    """L L^T, not L^T L: with entries far off the diagonal the two point elsewhere, and networks seldom start there."""
    learner = make_learner("naf", BOX, noise_type="precision", exploration_noise=0.01)
    fix_outputs(learner.model, [0.0, 0.0, np.log(1.0), 2.0, np.log(0.5), 0.0])
    factor = np.array([[1.0, 0.0], [2.0, 0.5]])
    noise = learner.act(np.zeros((40_000, 3), np.float32), explore=True).actions
    expected = 0.01**2 * np.linalg.inv(factor @ factor.T)
    assert not np.allclose(expected, 0.01**2 * np.linalg.inv(factor.T @ factor), atol=0.5 * expected.max())
    np.testing.assert_allclose(np.cov(noise.T), expected, atol=0.03 * expected.max())
    flat, steep = np.linalg.eigh(expected)[1][:, ::-1].T * 0.1
    both_ways = torch.tensor(np.stack([flat, steep]), dtype=torch.float32)
    lost = -learner.model.q_values(torch.zeros(2, 3), both_ways).detach()
    assert lost[0] < lost[1] / 10


def test_precision_noise_is_clipped_to_the_policy_scale() -> None:
    learner = make_learner("naf", BOX, noise_type="precision", exploration_noise=5.0)
    actions = learner.act(np.zeros((200, 3), np.float32), explore=True).actions
    assert actions.dtype == np.float32 and np.abs(actions).max() == 1.0
