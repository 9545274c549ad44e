"""QR-DQN: targets, loss, acting and updates against formulas written out by hand, and the pitfalls of quantiles."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from replay_helpers import (
    DISCRETE,
    assert_same_parameters,
    disturb,
    make_batch,
    make_learner,
    oracle,
    plain_copy,
    snapshot,
    soft_update,
)
from rl_training.algorithms import qr_dqn as qr_dqn_module
from rl_training.algorithms.common.quantiles import quantile_midpoints, quantiles_of
from rl_training.algorithms.qr_dqn import qr_dqn_loss, qr_dqn_target
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces

FEW = {"num_quantiles": 5}


def one_row(reward: float, discount: float) -> Transitions:
    nothing = torch.zeros(1, 3)
    return Transitions(nothing, torch.tensor([1]), torch.tensor([reward]), nothing, torch.tensor([discount]))


# --- targets and loss --------------------------------------------------------------------------------------------


def test_the_next_action_is_that_of_the_highest_mean_not_of_the_highest_quantile() -> None:
    # Action 0 has the largest quantile of all; action 1 has the larger mean.
    quantiles = torch.tensor([[[-9.0, 0.0, 10.0], [1.0, 2.0, 3.0]]])
    assert qr_dqn_target(one_row(1.0, 0.5), quantiles).tolist() == [[1.5, 2.0, 2.5]]
    # With double Q-learning the online network chooses, and the target network's quantiles count.
    assert qr_dqn_target(one_row(1.0, 0.5), quantiles, torch.tensor([[5.0, 4.0]])).tolist() == [[-3.5, 1.0, 6.0]]


def test_a_terminal_row_has_the_reward_exactly() -> None:
    target = qr_dqn_target(one_row(0.7, 0.0), torch.full((1, 3, 4), 1e30))
    assert torch.equal(target, torch.full((1, 4), 0.7))


@pytest.mark.parametrize("case", oracle("quantile_q_learning")["cases"], ids=["plain", "double"])
def test_losses_and_gradients_equal_an_independent_implementation(case: dict[str, Any]) -> None:
    inputs = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["inputs"].items()}
    nothing = torch.zeros(6, 3)
    batch = Transitions(nothing, inputs["actions"].long(), inputs["rewards"], nothing, inputs["discounts"])
    target = qr_dqn_target(batch, inputs["next_quantiles"], inputs.get("next_q_online"))
    quantiles = inputs["quantiles"].requires_grad_()
    loss, metrics = qr_dqn_loss(quantiles_of(quantiles, batch.actions), target, inputs["taus"])
    assert loss.item() == pytest.approx(np.mean(case["outputs"]["losses"]), rel=1e-10)
    gradient = torch.autograd.grad(loss, quantiles)[0]
    np.testing.assert_allclose(gradient.numpy(), case["outputs"]["gradient_of_mean"], atol=1e-12)
    assert set(metrics) == {"loss", "q_mean", "target_q_mean"}
    assert metrics["target_q_mean"].item() == pytest.approx(target.mean().item())
    assert not any(value.requires_grad for value in metrics.values())


# --- acting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True])
def test_acting_follows_the_mean_where_the_largest_quantile_is_elsewhere(dueling: bool) -> None:
    learner = make_learner("qr_dqn", DISCRETE, dueling=dueling, **FEW)
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.zero_()
        learner.model.advantage[-1].bias.view(4, 5)[0] = torch.tensor([-9.0, -9.0, 0.0, 0.0, 9.0])
        learner.model.advantage[-1].bias.view(4, 5)[2] = torch.ones(5)
    obs = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    assert learner.act(obs, explore=False).actions.tolist() == [2] * 5


def test_dueling_adds_one_value_to_each_quantile_of_all_actions() -> None:
    model = make_learner("qr_dqn", DISCRETE, dueling=True, **FEW).model
    obs = make_batch(DISCRETE, 6, 0).obs
    quantiles = model.quantiles(obs).detach()
    assert quantiles.shape == (6, 4, 5)
    torch.testing.assert_close(quantiles.mean(1), model.state_value(obs).detach(), rtol=0, atol=1e-5)
    with torch.no_grad():
        model.state_value[-1].bias[2] += 5.0
    moved = model.quantiles(obs) - quantiles
    torch.testing.assert_close(moved[..., 2], torch.full((6, 4), 5.0), rtol=0, atol=1e-5)
    torch.testing.assert_close(moved[..., :2], torch.zeros(6, 4, 2), rtol=0, atol=1e-5)


# --- the whole update against one written out by hand -----------------------------------------------------------


class ReferenceQRDQN:
    """Row by row and pair by pair, with ordinary modules, torch.optim.Adam and torch's own gradient clipping."""

    def __init__(self, learner: Any, *, double: bool, learning_rate: float, max_grad_norm: float | None):
        self.double, self.max_grad_norm = double, max_grad_norm
        self.online, self.target = (self.copies(model) for model in (learner.model, learner.target.module))
        epsilon = 0.01 / learner.config.batch_size
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=learning_rate, eps=epsilon)

    @staticmethod
    def copies(model: Any) -> nn.ModuleList:
        return nn.ModuleList([plain_copy(n) for n in (model.advantage, model.state_value) if n is not None])

    def quantiles(self, networks: nn.ModuleList, obs: Tensor) -> list[Tensor]:
        """Five quantiles per action."""
        advantages = [networks[0](obs)[a * 5 : (a + 1) * 5] for a in range(4)]
        if len(networks) == 1:
            return advantages
        mean = sum(advantages) / 4
        return [networks[1](obs) + advantage - mean for advantage in advantages]

    def update(self, batch: Transitions) -> list[float]:
        losses, errors = [], []
        for b in range(len(batch)):
            with torch.no_grad():
                judged = self.quantiles(self.online if self.double else self.target, batch.next_obs[b])
                best = max(range(4), key=lambda action: judged[action].mean().item())
                after = self.quantiles(self.target, batch.next_obs[b])[best]
                samples = [batch.rewards[b] + batch.discounts[b] * theta for theta in after]
            estimates = self.quantiles(self.online, batch.obs[b])[int(batch.actions[b])]
            loss: Any = 0.0
            for i, theta in enumerate(estimates):
                for sample in samples:
                    u = sample - theta
                    size = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
                    loss = loss + ((i + 0.5) / 5 if u >= 0 else 1 - (i + 0.5) / 5) * size / 5
            losses.append(loss * (1.0 if batch.weights is None else batch.weights[b]))
            errors.append(abs(np.mean([float(s) for s in samples]) - estimates.mean().item()))
        self.optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.online.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return errors


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"double": True},
        {"dueling": True, "max_grad_norm": 0.05},
        {"prioritized": True, "n_step": 3},
        {"double": True, "dueling": True, "prioritized": True, "n_step": 3, "tau": 0.01, "max_grad_norm": None},
    ],
    ids=lambda case: "+".join(case) or "plain",
)
def test_three_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    learner = make_learner("qr_dqn", DISCRETE, learning_rate=3e-3, target_update_every=20, **FEW, **case)
    disturb(learner.target.module)
    reference = ReferenceQRDQN(
        learner,
        double=case.get("double", False),
        learning_rate=3e-3,
        max_grad_norm=case.get("max_grad_norm", 10.0),
    )
    for number in range(3):
        batch = make_batch(DISCRETE, 12, number, weights=case.get("prioritized", False), n_step=case.get("n_step", 1))
        learner.clock.env_steps = 10 * (number + 1)
        result = learner.update(batch)
        errors = reference.update(batch)
        if "tau" in case:
            soft_update(reference.target, reference.online, case["tau"])
        elif number == 1:  # env step 20
            reference.target.load_state_dict(reference.online.state_dict())
        assert_same_parameters(reference.copies(learner.model), reference.online, tolerance=3e-6)
        assert_same_parameters(reference.copies(learner.target.module), reference.target, tolerance=3e-6)
        if case.get("prioritized"):
            np.testing.assert_allclose(result.priorities, errors, atol=1e-5)
        else:
            assert result.priorities is None
    assert learner.updates == 3


def test_metrics_of_an_update_are_named() -> None:
    result = make_learner("qr_dqn", DISCRETE).update(make_batch(DISCRETE, 8, 0))
    assert set(result) == {"loss", "q_mean", "target_q_mean", "grad_norm", "exploration", "learning_rate"}
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_no_gradient_reaches_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(quantiles: Tensor, target: Tensor, *others: Any) -> Any:
        seen.append(target)
        return qr_dqn_loss(quantiles, target, *others)

    monkeypatch.setattr(qr_dqn_module, "qr_dqn_loss", spy)
    learner = make_learner("qr_dqn", DISCRETE, double=True)
    before = snapshot(learner.target.module)
    learner.update(make_batch(DISCRETE, 8, 0))
    assert len(seen) == 1 and seen[0].shape == (8, 200) and not seen[0].requires_grad
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())
    torch.testing.assert_close(snapshot(learner.target.module), before, rtol=0, atol=0)


def test_a_coin_becomes_low_quantiles_first() -> None:
    """Rewards of -2 or +2 at random: low fractions learn the loss and high ones the gain, not the reverse."""
    learner = make_learner("qr_dqn", DISCRETE, batch_size=128, num_quantiles=4, learning_rate=2e-2)
    rng = np.random.default_rng(0)
    for number in range(200):
        batch = make_batch(DISCRETE, 128, number)
        batch.rewards = torch.from_numpy(rng.choice([-2.0, 2.0], 128).astype(np.float32))
        batch.discounts = torch.zeros(128)
        learner.update(batch)
    quantiles = learner.model.quantiles(torch.zeros(1, 3))[0].detach()
    assert (quantiles.diff(dim=1) > 0).all(), "quantiles must increase with their fraction"
    assert (quantiles[:, 0] < -1.4).all() and (quantiles[:, -1] > 1.4).all()
    assert torch.equal(learner.taus, quantile_midpoints(4))


def test_images_go_through_the_encoder_both_to_act_and_to_learn() -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(3))
    learner = make_learner("qr_dqn", spaces, dueling=True, model={"encoder_size": 16}, **FEW)
    rng = np.random.default_rng(0)
    obs = rng.integers(256, size=(8, 2, 36, 36), dtype=np.uint8)
    images = torch.from_numpy(obs)
    q_values = learner.model.q_values(images)
    assert q_values.shape == (8, 3)
    assert np.array_equal(learner.act(obs, explore=False).actions, q_values.argmax(1).numpy())
    before = snapshot(learner.model.encoder)
    actions, discounts = torch.from_numpy(rng.integers(3, size=8)), torch.full((8,), 0.9)
    learner.update(Transitions(images, actions, torch.linspace(-1.0, 1.0, 8), images, discounts))
    assert not torch.equal(snapshot(learner.model.encoder), before)
