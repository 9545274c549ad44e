"""IQN: the network, its fractions, targets, loss and updates against formulas written out by hand."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from config_cases import refused
from replay_helpers import DISCRETE, disturb, make_batch, make_learner, oracle, snapshot, soft_update
from rl_training.algorithms import iqn as iqn_module
from rl_training.algorithms.iqn import iqn_loss, iqn_target
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rows import coin_batch, one_row, slow_huber_quantiles

FEW = {"num_taus": 5, "num_target_taus": 3, "num_acting_taus": 4, "num_cosines": 6}


# --- targets and loss --------------------------------------------------------------------------------------------


def test_the_next_action_is_that_of_the_highest_mean_not_of_the_highest_quantile() -> None:
    quantiles = torch.tensor([[[-9.0, 10.0], [1.0, 3.0]]])
    # The means come from other fractions: here they prefer action 1, then action 0.
    assert iqn_target(one_row(1.0, 0.5), quantiles, torch.tensor([[0.5, 2.0]])).tolist() == [[1.5, 2.5]]
    assert iqn_target(one_row(1.0, 0.5), quantiles, torch.tensor([[5.0, 4.0]])).tolist() == [[-3.5, 6.0]]
    terminal = iqn_target(one_row(0.7, 0.0), 1e30 * quantiles, torch.zeros(1, 2))
    assert torch.equal(terminal, torch.full((1, 2), 0.7))


def test_losses_and_gradients_equal_an_independent_implementation() -> None:
    case = next(case for case in oracle("quantile_loss")["cases"] if case["source"].startswith("rlax"))
    inputs = {
        name: torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("quantiles", "targets", "taus")
    }
    quantiles = inputs["quantiles"].requires_grad_()
    loss, metrics = iqn_loss(quantiles, inputs["targets"], inputs["taus"])
    assert loss.item() == pytest.approx(case["outputs"]["loss"], rel=1e-10)
    gradient = torch.autograd.grad(loss, quantiles)[0]
    np.testing.assert_allclose(gradient.numpy(), case["outputs"]["gradient"], atol=1e-12)
    assert set(metrics) == {"loss", "q_mean", "target_q_mean"}
    assert not any(value.requires_grad for value in metrics.values())


# --- network -----------------------------------------------------------------------------------------------------


def slow_quantile(model: Any, obs: Tensor, tau: float, action: int) -> Tensor:
    """Eq. 4 of the paper for one observation, one fraction and one action."""
    psi = model.trunk(obs)
    cosines = torch.tensor([math.cos(math.pi * i * tau) for i in range(6)])
    phi = torch.relu(model.tau_layer.weight @ cosines + model.tau_layer.bias)
    values = model.advantage(psi * phi)
    if model.state_value is None:
        return values[action]
    return model.state_value(psi * phi)[0] + values[action] - values.mean()


@pytest.mark.parametrize("dueling", [False, True])
def test_quantiles_equal_the_formula_of_the_paper(dueling: bool) -> None:
    model = make_learner("iqn", DISCRETE, dueling=dueling, **FEW).model
    disturb(model)
    obs, taus = make_batch(DISCRETE, 3, 0).obs, torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    found = model.quantiles(obs, taus)
    assert found.shape == (3, 4, 2)
    for b in range(3):
        for action in range(4):
            for j in range(2):
                expected = slow_quantile(model, obs[b], taus[b, j].item(), action)
                torch.testing.assert_close(found[b, action, j], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("risk_level", "expected"), [(1.0, [0.125, 0.375, 0.625, 0.875]), (0.4, [0.05, 0.15, 0.25, 0.35])]
)
def test_actions_are_chosen_by_the_mean_over_the_midpoints(risk_level: float, expected: list[float]) -> None:
    learner = make_learner("iqn", DISCRETE, risk_level=risk_level, **FEW)
    disturb(learner.model)
    assert learner.model.acting_taus.tolist() == pytest.approx(expected)
    obs = make_batch(DISCRETE, 50, 0).obs
    means = learner.model.quantiles(obs, torch.tensor(expected)).mean(2)
    actions = learner.act(obs.numpy(), explore=False).actions
    assert np.array_equal(actions, means.argmax(1).numpy()) and len(np.unique(actions)) > 1
    _, _, choosing = learner.step_inputs(make_batch(DISCRETE, 500, 0))
    assert choosing.max() < risk_level and choosing.max() > 0.98 * risk_level


def test_every_row_has_fractions_of_its_own_and_every_use_its_own_draw() -> None:
    learner = make_learner("iqn", DISCRETE, **FEW)
    parts = learner.step_inputs(make_batch(DISCRETE, 40, 0))
    assert [tuple(part.shape) for part in parts] == [(40, 5), (40, 3), (40, 4)]
    together = torch.cat(parts, 1)
    assert together.unique().numel() == together.numel() and together.min() >= 0 and together.max() < 1
    again = learner.step_inputs(make_batch(DISCRETE, 40, 0))
    assert not torch.equal(again[0], parts[0]), "fresh in every update"


# --- the whole update against one written out by hand -----------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [{}, {"double": True}, {"dueling": True, "prioritized": True, "n_step": 3, "tau": 0.05, "max_grad_norm": None}],
    ids=lambda case: "+".join(case) or "plain",
)
def test_two_updates_equal_a_reference_written_by_hand(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("iqn", DISCRETE, learning_rate=3e-3, target_update_every=20, **FEW, **case)
    twin = make_learner("iqn", DISCRETE, learning_rate=3e-3, **FEW, **case)  # its networks, by torch alone
    disturb(learner.target.module)
    twin.target.load_state_dict(learner.target.state_dict())
    epsilon = 0.01 / learner.config.batch_size
    optimizer = torch.optim.Adam(twin.model.parameters(), lr=3e-3, eps=epsilon)
    drawn: list[tuple[Tensor, ...]] = []
    draw = learner.step_inputs
    monkeypatch.setattr(learner, "step_inputs", lambda batch: drawn.append(draw(batch)) or drawn[-1])
    for number in range(2):
        batch = make_batch(DISCRETE, 6, number, weights=case.get("prioritized", False), n_step=case.get("n_step", 1))
        learner.clock.env_steps = 10 * (number + 1)
        result = learner.update(batch)
        taus, target_taus, choosing = drawn[-1]
        losses, errors = [], []
        for b in range(6):
            chooser = twin.model if case.get("double") else twin.target.module
            with torch.no_grad():
                means = [
                    np.mean([slow_quantile(chooser, batch.next_obs[b], t.item(), a).item() for t in choosing[b]])
                    for a in range(4)
                ]
                best = int(np.argmax(means))
                samples = [
                    batch.rewards[b]
                    + batch.discounts[b] * slow_quantile(twin.target.module, batch.next_obs[b], t.item(), best)
                    for t in target_taus[b]
                ]
            estimates = [slow_quantile(twin.model, batch.obs[b], t.item(), int(batch.actions[b])) for t in taus[b]]
            loss = slow_huber_quantiles(estimates, samples, taus[b].tolist())
            losses.append(loss * (1.0 if batch.weights is None else batch.weights[b]))
            errors.append(abs(np.mean([float(s) for s in samples]) - np.mean([e.item() for e in estimates])))
        optimizer.zero_grad()
        (sum(losses) / 6).backward()
        if case.get("max_grad_norm", 10.0) is not None:
            torch.nn.utils.clip_grad_norm_(twin.model.parameters(), 10.0)
        optimizer.step()
        if "tau" in case:
            soft_update(twin.target.module, twin.model, case["tau"])
        elif number == 1:
            twin.target.load_state_dict(twin.model.state_dict())
        torch.testing.assert_close(snapshot(learner.model), snapshot(twin.model), rtol=0, atol=1e-5)
        torch.testing.assert_close(snapshot(learner.target.module), snapshot(twin.target.module), rtol=0, atol=1e-5)
        assert result["loss"].item() == pytest.approx((sum(losses) / 6).item(), rel=1e-4)
        if case.get("prioritized"):
            np.testing.assert_allclose(result.priorities, errors, atol=1e-4)


def test_metrics_of_an_update_are_named_and_no_gradient_reaches_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(quantiles: Tensor, target: Tensor, *others: Any) -> Any:
        seen.append(target)
        return iqn_loss(quantiles, target, *others)

    monkeypatch.setattr(iqn_module, "iqn_loss", spy)
    learner = make_learner("iqn", DISCRETE, double=True)
    before = snapshot(learner.target.module)
    result = learner.update(make_batch(DISCRETE, 8, 0))
    assert set(result) == {"loss", "q_mean", "target_q_mean", "grad_norm", "exploration", "learning_rate"}
    assert len(seen) == 1 and seen[0].shape == (8, 64) and not seen[0].requires_grad
    torch.testing.assert_close(snapshot(learner.target.module), before, rtol=0, atol=0)


def test_a_coin_becomes_low_quantiles_first() -> None:
    learner = make_learner("iqn", DISCRETE, batch_size=128, num_taus=8, num_target_taus=8, learning_rate=2e-2)
    rng = np.random.default_rng(0)
    for number in range(200):
        learner.update(coin_batch(make_batch(DISCRETE, 128, number), 2.0, rng))
    low, high = learner.model.quantiles(torch.zeros(1, 3), torch.tensor([0.1, 0.9]))[0].detach().T
    assert (low < -1.2).all() and (high > 1.2).all()


def test_images_go_through_the_encoder_both_to_act_and_to_learn() -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(3))
    learner = make_learner("iqn", spaces, model={"encoder_size": 16}, **FEW)
    rng = np.random.default_rng(0)
    obs = rng.integers(256, size=(8, 2, 36, 36), dtype=np.uint8)
    images = torch.from_numpy(obs)
    assert learner.model.trunk is None and learner.model.tau_layer.out_features == 16
    q_values = learner.model.q_values(images)
    assert np.array_equal(learner.act(obs, explore=False).actions, q_values.argmax(1).numpy())
    before = snapshot(learner.model.encoder)
    actions, discounts = torch.from_numpy(rng.integers(3, size=8)), torch.full((8,), 0.9)
    learner.update(Transitions(images, actions, torch.linspace(-1.0, 1.0, 8), images, discounts))
    assert not torch.equal(snapshot(learner.model.encoder), before)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5])
def test_fractions_outside_of_0_and_1_are_refused(value: float) -> None:
    message = refused({"algo": "iqn", "env_id": "Env-v0", "algo_kwargs": {"risk_level": value}})
    assert message.startswith("algo_kwargs.risk_level: ") and "\n" not in message
