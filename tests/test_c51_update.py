"""C51: targets, loss, acting and updates against formulas written out by hand, and the pitfalls of the family."""

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
from rl_training.algorithms import c51 as c51_module
from rl_training.algorithms.c51 import c51_loss, greedy_distribution, logits_of
from rl_training.algorithms.common.projections import categorical_projection
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from slow_formulas import slow_projection

SUPPORT = {"num_atoms": 7, "support_low": -6.0, "support_high": 9.0}


# --- targets and loss --------------------------------------------------------------------------------------------


def test_the_next_action_is_that_of_the_highest_mean_not_of_the_likeliest_atom() -> None:
    support = torch.tensor([0.0, 1.0, 10.0])
    # Action 0 has the largest logit of all, at a low return; action 1 has the larger mean.
    logits = torch.log(torch.tensor([[[0.9, 0.1, 1e-9], [0.3, 0.3, 0.4]]]))
    torch.testing.assert_close(greedy_distribution(logits, support)[0], logits[0, 1].exp())
    # With double Q-learning the online network chooses, and the target network's distribution counts.
    online = torch.tensor([[5.0, 4.0]])
    torch.testing.assert_close(greedy_distribution(logits, support, online)[0], logits[0, 0].exp())


@pytest.mark.parametrize("case", oracle("categorical_q_learning")["cases"], ids=lambda case: case["source"])
def test_losses_and_gradients_equal_an_independent_implementation(case: dict[str, Any]) -> None:
    inputs = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["inputs"].items()}
    actions, support = inputs["actions"].long(), inputs["support"]
    probabilities = greedy_distribution(inputs["next_logits"], support, inputs.get("next_q_online"))
    target = categorical_projection(inputs["rewards"], inputs["discounts"], probabilities, support)
    logits = inputs["logits"].requires_grad_()
    loss, metrics = c51_loss(logits_of(logits, actions), target, support)
    assert loss.item() == pytest.approx(np.mean(case["outputs"]["losses"]), rel=1e-10)
    gradient = torch.autograd.grad(loss, logits)[0]
    np.testing.assert_allclose(gradient.numpy(), case["outputs"]["gradient_of_mean"], atol=1e-12)
    assert set(metrics) == {"loss", "q_mean", "target_q_mean"}
    assert metrics["target_q_mean"].item() == pytest.approx((target * support).sum(1).mean().item())
    assert not any(value.requires_grad for value in metrics.values())


# --- acting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True])
def test_acting_follows_the_expectation_where_the_largest_logit_is_elsewhere(dueling: bool) -> None:
    learner = make_learner("c51", DISCRETE, dueling=dueling, **SUPPORT)
    with torch.no_grad():
        for network in (learner.model.advantage, learner.model.state_value):
            if network is not None:
                for parameter in network.parameters():
                    parameter.zero_()
        # Sure of the middle, or unsure but better on the whole: the first has the larger logit.
        learner.model.advantage[-1].bias.view(4, 7)[0] = torch.tensor([0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0])
        learner.model.advantage[-1].bias.view(4, 7)[2] = torch.tensor([0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0])
    obs = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    assert learner.model.distribution_logits(torch.from_numpy(obs)).flatten(1).argmax(1).tolist() == [3] * 5
    assert learner.act(obs, explore=False).actions.tolist() == [2] * 5


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_acting_in_numpy_agrees_with_the_network(dueling: bool, normalize: bool) -> None:
    learner = make_learner("c51", DISCRETE, dueling=dueling, model={"normalize_observations": normalize})
    disturb(learner.model)
    obs = 2 * np.random.default_rng(1).standard_normal((300, 3)).astype(np.float32)
    learner.observe(obs + 1)
    kept = obs.copy()
    actions = learner.act(obs, explore=False).actions
    assert np.array_equal(actions, learner.model.q_values(torch.from_numpy(obs)).argmax(1).numpy())
    assert len(np.unique(actions)) > 1 and np.array_equal(obs, kept)


def test_dueling_moves_atoms_and_not_only_values() -> None:
    """Q = V + A - mean A, for each atom of its own: moving all advantages of an atom together changes nothing."""
    model = make_learner("c51", DISCRETE, dueling=True, **SUPPORT).model
    obs = make_batch(DISCRETE, 6, 0).obs
    logits = model.distribution_logits(obs).detach()
    assert logits.shape == (6, 4, 7)
    torch.testing.assert_close(logits.mean(1), model.state_value(obs).detach(), rtol=0, atol=1e-5)
    with torch.no_grad():
        model.advantage[-1].bias.view(4, 7)[:, 2] += 5.0
    torch.testing.assert_close(model.distribution_logits(obs), logits, rtol=0, atol=1e-5)
    with torch.no_grad():
        model.state_value[-1].bias[2] += 5.0
    assert not torch.allclose(model.q_values(obs), (logits.softmax(-1) @ model.support), atol=1e-2)


# --- the whole update against one written out by hand -----------------------------------------------------------


class ReferenceC51:
    """Row by row and atom by atom, with ordinary modules, torch.optim.Adam and torch's own gradient clipping."""

    def __init__(self, learner: Any, *, double: bool, learning_rate: float, max_grad_norm: float | None):
        self.double, self.max_grad_norm, self.support = double, max_grad_norm, learner.model.support.tolist()
        self.online, self.target = (self.copies(model) for model in (learner.model, learner.target.module))
        epsilon = 0.01 / learner.config.batch_size
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=learning_rate, eps=epsilon)

    @staticmethod
    def copies(model: Any) -> nn.ModuleList:
        return nn.ModuleList([plain_copy(n) for n in (model.advantage, model.state_value) if n is not None])

    def logits(self, networks: nn.ModuleList, obs: Tensor) -> list[Tensor]:
        """One row of atoms per action."""
        atoms = len(self.support)
        advantages = [networks[0](obs)[a * atoms : (a + 1) * atoms] for a in range(4)]
        if len(networks) == 1:
            return advantages
        mean = sum(advantages) / 4
        return [networks[1](obs) + advantage - mean for advantage in advantages]

    def means(self, networks: nn.ModuleList, obs: Tensor) -> list[float]:
        rows = [torch.softmax(row, 0).tolist() for row in self.logits(networks, obs)]
        return [sum(p * z for p, z in zip(row, self.support, strict=True)) for row in rows]

    def update(self, batch: Transitions) -> list[float]:
        losses, divergences = [], []
        for b in range(len(batch)):
            with torch.no_grad():
                means = self.means(self.online if self.double else self.target, batch.next_obs[b])
                best = max(range(4), key=lambda action: means[action])
                probabilities = torch.softmax(self.logits(self.target, batch.next_obs[b])[best], 0).tolist()
            m = slow_projection(batch.rewards[b].item(), batch.discounts[b].item(), probabilities, self.support)
            log_p = torch.log_softmax(self.logits(self.online, batch.obs[b])[int(batch.actions[b])], 0)
            loss = -sum(mass * log_p[i] for i, mass in enumerate(m))
            losses.append(loss * (1.0 if batch.weights is None else batch.weights[b]))
            divergences.append(loss.item() + sum(mass * np.log(mass) for mass in m if mass > 0))
        self.optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.online.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return divergences


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"double": True},
        {"dueling": True},
        {"prioritized": True},
        {"n_step": 3},
        {"max_grad_norm": 0.05},
        {"tau": 0.1},
        {"double": True, "dueling": True, "prioritized": True, "n_step": 3, "tau": 0.01, "max_grad_norm": None},
    ],
    ids=lambda case: "+".join(case) or "plain",
)
def test_three_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    learner = make_learner("c51", DISCRETE, learning_rate=3e-3, target_update_every=20, **SUPPORT, **case)
    disturb(learner.target.module)
    reference = ReferenceC51(
        learner,
        double=case.get("double", False),
        learning_rate=3e-3,
        max_grad_norm=case.get("max_grad_norm", 10.0),
    )
    for number in range(3):
        batch = make_batch(DISCRETE, 12, number, weights=case.get("prioritized", False), n_step=case.get("n_step", 1))
        learner.clock.env_steps = 10 * (number + 1)
        result = learner.update(batch)
        divergences = reference.update(batch)
        if "tau" in case:
            soft_update(reference.target, reference.online, case["tau"])
        elif number == 1:  # env step 20
            reference.target.load_state_dict(reference.online.state_dict())
        assert_same_parameters(reference.copies(learner.model), reference.online)
        assert_same_parameters(reference.copies(learner.target.module), reference.target)
        if case.get("prioritized"):
            np.testing.assert_allclose(result.priorities, divergences, atol=1e-5)
        else:
            assert result.priorities is None
    assert learner.updates == 3


def test_metrics_of_an_update_are_named() -> None:
    result = make_learner("c51", DISCRETE).update(make_batch(DISCRETE, 8, 0))
    expected = {"loss", "q_mean", "target_q_mean", "support_clipped", "grad_norm", "exploration", "learning_rate"}
    assert set(result) == expected
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_metrics_say_what_was_predicted_aimed_at_clipped_and_scheduled() -> None:
    learner = make_learner("c51", DISCRETE, learning_rate={"start": 1e-2, "end": 0.0, "over": 10}, **SUPPORT)
    disturb(learner.target.module)
    batch, model, target = make_batch(DISCRETE, 40, 0), learner.model, learner.target.module
    learner.clock.env_steps = 250  # of 1000: epsilon is on its way from 1 to 0.05, the learning rate at its end
    predicted, aimed, clipped = [], [], []
    for obs, action, reward, next_obs, discount in zip(
        batch.obs, batch.actions, batch.rewards, batch.next_obs, batch.discounts, strict=True
    ):
        predicted.append(model.q_values(obs[None])[0, action].item())
        best = target.q_values(next_obs[None]).argmax()
        mass = target.distribution_logits(next_obs[None])[0, best].softmax(0)
        atoms = reward + discount * model.support
        clipped.append(mass[(atoms < -6.025) | (atoms > 9.025)].sum().item())  # a hundredth of the spacing of 2.5
        aimed.append((mass * atoms.clamp(-6, 9)).sum().item())
    before = snapshot(model)
    metrics = learner.update(batch)
    assert metrics["q_mean"].item() == pytest.approx(np.mean(predicted), abs=1e-4)
    assert metrics["target_q_mean"].item() == pytest.approx(np.mean(aimed), abs=1e-4)
    assert metrics["support_clipped"].item() == pytest.approx(np.mean(clipped), abs=1e-4)
    assert 0.01 < np.mean(clipped) < 0.9
    assert metrics["exploration"].item() == pytest.approx(1.0 - 0.95 / 4)
    assert metrics["learning_rate"].item() == 0.0 and torch.equal(snapshot(model), before)


def test_no_gradient_reaches_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(logits: Tensor, target: Tensor, *others: Any) -> Any:
        seen.append(target)
        return c51_loss(logits, target, *others)

    monkeypatch.setattr(c51_module, "c51_loss", spy)
    learner = make_learner("c51", DISCRETE, double=True)
    before = snapshot(learner.target.module)
    learner.update(make_batch(DISCRETE, 8, 0))
    assert len(seen) == 1 and seen[0].shape == (8, 51) and not seen[0].requires_grad
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())
    torch.testing.assert_close(snapshot(learner.target.module), before, rtol=0, atol=0)


def test_a_narrow_support_is_seen_in_the_metrics() -> None:
    batch = make_batch(DISCRETE, 64, 0)  # rewards of about +-3
    wide = make_learner("c51", DISCRETE, support_low=-100.0, support_high=100.0)
    assert wide.update(batch)["support_clipped"] < 0.02
    narrow = make_learner("c51", DISCRETE, support_low=-1.0, support_high=1.0)
    metrics = {name: float(value) for name, value in narrow.update(batch).items()}
    assert 0.3 < metrics["support_clipped"] <= 1.0


def test_a_coin_becomes_two_equal_masses() -> None:
    """Rewards of -1 or +1 at random: a mean of 0 is not learned as a return of 0."""
    settings: dict[str, Any] = {"num_atoms": 5, "support_low": -2.0, "support_high": 2.0, "learning_rate": 1e-2}
    learner = make_learner("c51", DISCRETE, batch_size=256, **settings)
    rng = np.random.default_rng(0)
    for number in range(150):
        batch = make_batch(DISCRETE, 256, number)
        batch.rewards = torch.from_numpy(rng.choice([-1.0, 1.0], 256).astype(np.float32))
        batch.discounts = torch.zeros(256)
        learner.update(batch)
    mass = learner.model.distribution_logits(torch.zeros(1, 3)).softmax(-1)[0]
    np.testing.assert_allclose(mass.detach().numpy(), np.tile([0.0, 0.5, 0.0, 0.5, 0.0], (4, 1)), atol=0.06)


@pytest.mark.parametrize("dueling", [False, True])
def test_images_go_through_the_encoder_both_to_act_and_to_learn(dueling: bool) -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(3))
    learner = make_learner("c51", spaces, dueling=dueling, model={"encoder_size": 16}, **SUPPORT)
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


def test_the_target_is_copied_after_the_first_update_of_each_period_and_not_a_step_early() -> None:
    learner = make_learner("c51", DISCRETE, learning_rate=3e-3, target_update_every=50, **SUPPORT)
    copied = []
    for env_steps in (1, 49, 50, 99, 100):
        learner.clock.env_steps = env_steps
        learner.update(make_batch(DISCRETE, 8, env_steps))
        copied.append(torch.equal(snapshot(learner.target.module), snapshot(learner.model)))
    assert copied == [False, False, True, False, True]
