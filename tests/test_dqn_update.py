"""DQN: targets, loss and updates against formulas written out by hand, and the pitfalls of the family."""

from __future__ import annotations

from typing import Any

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
from rl_training.algorithms import dqn as dqn_module
from rl_training.algorithms.dqn import dqn_loss, dqn_target
from rl_training.data.transitions import Transitions


def one_row(reward: float, discount: float) -> Transitions:
    nothing = torch.zeros(1, 3)
    return Transitions(nothing, torch.tensor([1]), torch.tensor([reward]), nothing, torch.tensor([discount]))


def huber(error: Any) -> Any:
    return 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5


# --- targets ---------------------------------------------------------------------------------------------------


def test_double_q_error_of_the_published_fixture() -> None:
    target_q, selector = torch.tensor([[4.0, 5.0, 6.0]]), torch.tensor([[0.0, 9.0, 1.0]])
    target = dqn_target(one_row(0.5, 0.9), target_q, selector)
    assert target.item() - 2.0 == pytest.approx(3.0)
    # Selector and evaluator swapped would give another number: 0.5 + 0.9 * 1.
    assert dqn_target(one_row(0.5, 0.9), selector, target_q).item() == pytest.approx(1.4)
    # Without the selector the target network's own maximum counts.
    assert dqn_target(one_row(0.5, 0.9), target_q).item() == pytest.approx(0.5 + 0.9 * 6.0)


@pytest.mark.parametrize("double", [False, True])
def test_a_terminal_row_has_the_reward_exactly(double: bool) -> None:
    huge = torch.full((1, 3), 1e30)
    assert dqn_target(one_row(0.7, 0.0), huge, huge if double else None).item() == torch.tensor(0.7).item()


@pytest.mark.parametrize("double", [False, True])
def test_targets_equal_the_slow_formula(double: bool) -> None:
    rng = np.random.default_rng(5)
    rewards, discounts = rng.standard_normal(20), rng.choice([0.0, 0.9, 0.81], 20)
    next_q, online = rng.standard_normal((20, 4)), rng.standard_normal((20, 4))
    slow = []
    for b in range(20):
        chosen_by = online[b] if double else next_q[b]
        best = max(range(4), key=lambda action: chosen_by[action])
        slow.append(rewards[b] + discounts[b] * next_q[b][best])
    batch = make_batch(DISCRETE, 20, 0)
    batch.rewards, batch.discounts = torch.from_numpy(rewards), torch.from_numpy(discounts)
    ours = dqn_target(batch, torch.from_numpy(next_q), torch.from_numpy(online) if double else None)
    np.testing.assert_allclose(ours.numpy(), slow, rtol=1e-14)


# --- loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [-5.0, -1.5, -0.5, 0.25, 1.0, 5.0])
def test_the_gradient_of_the_loss_is_the_error_clipped_to_one(error: float) -> None:
    q = torch.tensor([2.0 + error], dtype=torch.float64, requires_grad=True)
    loss, _ = dqn_loss(q, torch.tensor([2.0], dtype=torch.float64))
    loss.backward()
    assert loss.item() == pytest.approx(huber(error))
    assert q.grad is not None
    assert q.grad.item() == pytest.approx(np.clip(error, -1, 1))


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_equals_the_slow_formula_and_finite_differences(weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q = (3 * torch.randn(12, generator=generator, dtype=torch.float64)).requires_grad_()
    target = torch.randn(12, generator=generator, dtype=torch.float64)
    weights = torch.rand(12, generator=generator, dtype=torch.float64) if weighted else None
    errors = (q.detach() - target).tolist()
    slow = sum((1.0 if weights is None else float(weights[b])) * huber(errors[b]) for b in range(12))
    loss, metrics = dqn_loss(q, target, weights)
    assert loss.item() == pytest.approx(slow / 12, rel=1e-12)
    assert torch.autograd.gradcheck(lambda q: dqn_loss(q, target, weights)[0], (q,))
    assert {"loss", "q_mean", "target_q_mean"} == set(metrics)
    assert metrics["q_mean"].item() == pytest.approx(q.detach().numpy().mean())
    assert metrics["target_q_mean"].item() == pytest.approx(target.numpy().mean())
    assert not any(value.requires_grad for value in metrics.values())


@pytest.mark.parametrize("name", ["q_learning", "double_q"])
def test_targets_and_losses_equal_an_independent_implementation(name: str) -> None:
    for case in oracle(name)["cases"]:
        inputs = {key: torch.tensor(value, dtype=torch.float64) for key, value in case["inputs"].items()}
        rewards, outputs = inputs["rewards"], case["outputs"]
        nothing = torch.zeros(len(rewards), 3)
        batch = Transitions(nothing, inputs["actions"].long(), rewards, nothing, inputs["discounts"])
        q = inputs["q"].gather(1, batch.actions[:, None]).squeeze(1)
        target = dqn_target(batch, inputs["next_q"], inputs.get("next_q_online"))
        np.testing.assert_allclose((target - q).numpy(), outputs["td_errors"], rtol=1e-10, atol=1e-12)
        assert dqn_loss(q, target)[0].item() == pytest.approx(np.mean(outputs["huber_losses"]), rel=1e-10)


# --- the whole update against one written out by hand -----------------------------------------------------------


class ReferenceDQN:
    """Row by row, with ordinary modules, torch.optim.Adam and torch's own gradient clipping."""

    def __init__(self, learner: Any, *, double: bool, learning_rate: float, max_grad_norm: float | None):
        self.double, self.max_grad_norm = double, max_grad_norm
        self.online, self.target = (self.copies(model) for model in (learner.model, learner.target.module))
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=learning_rate)

    @staticmethod
    def copies(model: Any) -> nn.ModuleList:
        return nn.ModuleList([plain_copy(n) for n in (model.advantage, model.state_value) if n is not None])

    @staticmethod
    def q_row(networks: nn.ModuleList, obs: Tensor) -> Tensor:
        advantages = networks[0](obs)
        if len(networks) == 1:
            return advantages
        return networks[1](obs) + advantages - sum(advantages) / len(advantages)

    def update(self, batch: Transitions) -> list[float]:
        losses, errors = [], []
        for b in range(len(batch)):
            with torch.no_grad():
                next_q = self.q_row(self.target, batch.next_obs[b])
                chosen_by = self.q_row(self.online, batch.next_obs[b]) if self.double else next_q
                y = float(batch.rewards[b] + batch.discounts[b] * next_q[int(chosen_by.argmax())])
            error = self.q_row(self.online, batch.obs[b])[batch.actions[b]] - y
            losses.append(huber(error) * (1.0 if batch.weights is None else batch.weights[b]))
            errors.append(abs(error.item()))
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
        {"dueling": True},
        {"prioritized": True},
        {"n_step": 3},
        {"max_grad_norm": 0.05},
        {"max_grad_norm": None},
        {"tau": 0.1},
        {"double": True, "dueling": True, "prioritized": True, "n_step": 3, "tau": 0.01},
    ],
    ids=lambda case: "+".join(case) or "plain",
)
def test_three_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    learner = make_learner("dqn", DISCRETE, learning_rate=3e-3, target_update_every=20, **case)
    disturb(learner.target.module)
    reference = ReferenceDQN(
        learner,
        double=case.get("double", False),
        learning_rate=3e-3,
        max_grad_norm=case.get("max_grad_norm", 10.0),
    )
    for number in range(3):
        batch = make_batch(DISCRETE, 16, number, weights=case.get("prioritized", False), n_step=case.get("n_step", 1))
        learner.clock.env_steps = 10 * (number + 1)
        result = learner.update(batch)
        errors = reference.update(batch)
        if "tau" in case:
            soft_update(reference.target, reference.online, case["tau"])
        elif number == 1:  # env step 20
            reference.target.load_state_dict(reference.online.state_dict())
        networks = [n for n in (learner.model.advantage, learner.model.state_value) if n is not None]
        targets = [n for n in (learner.target.module.advantage, learner.target.module.state_value) if n is not None]
        assert_same_parameters(nn.ModuleList(networks), reference.online)
        assert_same_parameters(nn.ModuleList(targets), reference.target)
        if case.get("prioritized"):
            np.testing.assert_allclose(result.priorities, errors, atol=1e-5)
        else:
            assert result.priorities is None
    assert learner.updates == 3


def test_the_learning_rate_follows_its_schedule_in_env_steps() -> None:
    learner = make_learner(
        "dqn", DISCRETE, total_timesteps=100, learning_starts=1, learning_rate={"start": 1e-2, "end": 0.0}
    )
    reference = ReferenceDQN(learner, double=False, learning_rate=1e-2, max_grad_norm=10.0)
    for number, env_steps in enumerate((0, 25, 100)):
        learner.clock.env_steps = env_steps
        reference.optimizer.param_groups[0]["lr"] = 1e-2 * (1 - env_steps / 100)
        batch = make_batch(DISCRETE, 8, number)
        learner.update(batch)
        reference.update(batch)
        assert_same_parameters(learner.model.advantage, reference.online[0])


def test_metrics_of_an_update_are_named() -> None:
    result = make_learner("dqn", DISCRETE).update(make_batch(DISCRETE, 8, 0))
    assert set(result) == {"loss", "q_mean", "target_q_mean", "grad_norm", "exploration", "learning_rate"}
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_no_gradient_reaches_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(q: Tensor, target: Tensor, weights: Tensor | None = None) -> Any:
        seen.append(target)
        return dqn_loss(q, target, weights)

    monkeypatch.setattr(dqn_module, "dqn_loss", spy)
    learner = make_learner("dqn", DISCRETE, double=True)
    before = snapshot(learner.target.module)
    learner.update(make_batch(DISCRETE, 8, 0))
    assert len(seen) == 1 and seen[0].shape == (8,) and not seen[0].requires_grad
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())
    torch.testing.assert_close(snapshot(learner.target.module), before, rtol=0, atol=0)


def test_importance_weights_scale_the_step() -> None:
    """Weight 0 takes a row out of the loss: the update equals that on the other rows at half their mean."""
    learner, other = (make_learner("dqn", DISCRETE, max_grad_norm=None, prioritized=True) for _ in range(2))
    batch = make_batch(DISCRETE, 8, 0)
    batch.weights = torch.tensor([1.0] * 4 + [0.0] * 4)
    norm = learner.update(batch)["grad_norm"]
    half = Transitions(*(getattr(batch, name)[:4] for name in ("obs", "actions", "rewards", "next_obs", "discounts")))
    torch.testing.assert_close(norm, other.update(half)["grad_norm"] / 2)


# --- network ---------------------------------------------------------------------------------------------------


def test_dueling_values_do_not_change_when_all_advantages_move_together() -> None:
    model = make_learner("dqn", DISCRETE, dueling=True).model
    obs = make_batch(DISCRETE, 6, 0).obs
    before = model.q_values(obs).detach()
    # A mean over the batch would still be invariant to this, but not to rows that move apart.
    with torch.no_grad():
        model.advantage[-1].bias += 7.0
    torch.testing.assert_close(model.q_values(obs), before, rtol=0, atol=1e-5)
    alone = torch.cat([model.q_values(row[None]) for row in obs])
    torch.testing.assert_close(model.q_values(obs), alone, rtol=0, atol=1e-6)
    values = model.state_value(obs)
    torch.testing.assert_close(model.q_values(obs).mean(1, keepdim=True), values, rtol=0, atol=1e-6)
