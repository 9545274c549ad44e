"""MPO: both steps and the dual variables, against rlax, distrax and formulas written out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from replay_helpers import (
    BOX,
    assert_same_parameters,
    disturb,
    make_batch,
    make_learner,
    oracle,
    plain_copy,
    snapshot,
    soft_update,
)
from rl_training.algorithms import mpo as mpo_module
from rl_training.algorithms.common.streams import Streams
from rl_training.algorithms.mpo import (
    DUAL_FLOOR,
    Bound,
    Duals,
    decoupled_gaussian,
    mpo_loss,
    mpo_target,
    mpo_temperature_loss,
    mpo_weights,
)
from rl_training.config.algorithms.mpo import MPOConfig
from rl_training.data.transitions import Transitions


def double(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def cases(source: str) -> list[dict[str, Any]]:
    return [case for case in oracle("mpo")["cases"] if case["source"] == source]


@pytest.mark.parametrize("case", cases("rlax.mpo_loss"))
def test_loss_its_terms_and_its_gradients_equal_those_of_rlax(case: dict[str, Any]) -> None:
    inputs = {name: double(value) for name, value in case["inputs"].items()}
    names = [name for name in inputs if name != "q_values" and not name.endswith("limit")]
    for name in names:
        inputs[name].requires_grad_()
    weights = mpo_weights(inputs["q_values"], inputs["temperature"])
    temperature_loss = mpo_temperature_loss(
        inputs["q_values"], inputs["temperature"], case["inputs"]["improvement_limit"]
    )
    bounds = [
        Bound(inputs[f"{name}_kl"], inputs[f"{name}_multiplier"], case["inputs"][f"{name}_limit"])
        for name in ("mean", "covariance")
    ]
    loss, metrics = mpo_loss(inputs["log_probs"], weights, temperature_loss, bounds)
    expected = case["outputs"]
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-10)
    np.testing.assert_allclose(weights.detach(), expected["weights"], rtol=1e-10)
    for term in ("policy_loss", "temperature_loss", "kl_penalty", "dual_loss"):
        assert metrics[term].item() == pytest.approx(expected[term], rel=1e-10), term
    for name, gradient in zip(names, torch.autograd.grad(loss, [inputs[name] for name in names]), strict=True):
        np.testing.assert_allclose(gradient, expected["gradients"][name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_loss_of_the_case_that_rlax_documents() -> None:
    log_probs = double([[0.2, 0.3], [0.5, 0.1], [0.3, 0.6]]).log()
    q_values, temperature = double([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]]), double([1.0])
    weights = mpo_weights(q_values, temperature)
    np.testing.assert_allclose(weights, [[0.244728] * 2, [0.665241] * 2, [0.090031] * 2], atol=1e-6)
    per_state = [mpo_temperature_loss(q_values[:, [b]], temperature, 0.1).item() for b in (0, 1)]
    np.testing.assert_allclose(per_state, [1.408994, 0.408994], atol=1e-6)
    assert mpo_temperature_loss(q_values, temperature, 0.1).item() == pytest.approx(np.mean(per_state))
    for b, kl, expected in ((0, 0.02, 2.382373), (1, 0.03, 2.291404)):
        bound = Bound(double([[kl]]), double([1.0]), 0.01)
        loss, _ = mpo_loss(log_probs[:, [b]], weights[:, [b]], double(per_state[b]), [bound])
        assert loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("case", cases("distrax.Normal"))
def test_decoupled_gaussian_equals_distrax(case: dict[str, Any]) -> None:
    found = decoupled_gaussian(*(double(value) for value in case["inputs"].values()))
    for name, value in zip(("log_probs", "mean_kl", "covariance_kl"), found, strict=True):
        np.testing.assert_allclose(value, case["outputs"][name], rtol=1e-10, err_msg=name)


def test_both_kls_are_those_of_torch_and_vanish_at_the_target_policy() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, old_mean, old_log_std = torch.randn(4, 5, 2, generator=generator, dtype=torch.float64)
    actions = torch.randn(3, 5, 2, generator=generator, dtype=torch.float64)
    _, mean_kl, covariance_kl = decoupled_gaussian(actions, mean, log_std, old_mean, old_log_std)
    old = Normal(old_mean, old_log_std.exp())
    torch.testing.assert_close(mean_kl, kl_divergence(old, Normal(mean, old_log_std.exp())))
    torch.testing.assert_close(covariance_kl, kl_divergence(old, Normal(old_mean, log_std.exp())))
    same = decoupled_gaussian(actions, old_mean, old_log_std, old_mean, old_log_std)
    torch.testing.assert_close(same[1], torch.zeros_like(mean))
    torch.testing.assert_close(same[2], torch.zeros_like(mean))


def test_the_mean_learns_nothing_from_the_spread_and_the_spread_nothing_from_the_mean() -> None:
    generator = torch.Generator().manual_seed(1)
    actions, mean, log_std = (torch.randn(4, 2, generator=generator).requires_grad_() for _ in range(3))
    old_mean, old_log_std = torch.zeros(4, 2), torch.zeros(4, 2)
    gradients = []
    for shift in (0.0, 1.0):
        moved_mean, moved_log_std = mean + shift, log_std + shift
        log_probs, *_ = decoupled_gaussian(actions, mean, moved_log_std, old_mean, old_log_std)
        of_mean = torch.autograd.grad(log_probs.sum(), mean)[0]
        log_probs, *_ = decoupled_gaussian(actions, moved_mean, log_std, old_mean, old_log_std)
        gradients.append((of_mean, torch.autograd.grad(log_probs.sum(), log_std)[0]))
    torch.testing.assert_close(gradients[0], gradients[1])


def test_weights_are_over_the_samples_of_a_state_and_uniform_where_all_are_alike() -> None:
    q_values = torch.tensor([[5.0, 1.0], [5.0, 3.0], [5.0, -2.0], [5.0, 0.0]])
    weights = mpo_weights(q_values, torch.tensor([0.7]))
    torch.testing.assert_close(weights.sum(0), torch.ones(2))
    torch.testing.assert_close(weights[:, 0], torch.full((4,), 0.25))
    assert weights[:, 1].argmax() == 1
    # What is added to all samples of a state is nobody's merit; a low temperature takes the best alone.
    torch.testing.assert_close(mpo_weights(q_values + torch.tensor([100.0, -50.0]), torch.tensor([0.7])), weights)
    torch.testing.assert_close(mpo_weights(q_values, torch.tensor([1e-3]))[:, 1], torch.tensor([0.0, 1.0, 0.0, 0.0]))


def test_the_temperature_settles_where_the_weighted_samples_are_at_their_bound() -> None:
    """At the minimum of the dual, KL(q || uniform) over the samples equals epsilon."""
    generator = torch.Generator().manual_seed(2)
    q_values = 3 * torch.randn(50, 20, generator=generator, dtype=torch.float64)
    low, high = 0.01, 100.0
    for _ in range(60):  # the dual is convex: its slope tells on which side the minimum lies
        temperature = double([(low * high) ** 0.5]).requires_grad_()
        (slope,) = torch.autograd.grad(mpo_temperature_loss(q_values, temperature, 0.1), temperature)
        low, high = (temperature.item(), high) if slope < 0 else (low, temperature.item())
    weights = mpo_weights(q_values, double([low]))
    assert (weights * (50 * weights).log()).sum(0).mean().item() == pytest.approx(0.1, rel=1e-6)


def test_a_multiplier_grows_while_its_bound_is_broken_and_fades_while_it_is_kept() -> None:
    multiplier = torch.ones(2, requires_grad=True)
    kl = torch.tensor([[0.3, 0.001], [0.1, 0.003]], requires_grad=True)
    log_probs, weights = torch.zeros(3, 2), torch.full((3, 2), 1 / 3)
    loss, _ = mpo_loss(log_probs, weights, torch.zeros(()), [Bound(kl, multiplier, 0.01)])
    of_multiplier, of_kl = torch.autograd.grad(loss, [multiplier, kl])
    # Per dimension: one bound is broken, the other kept. The KL itself is pressed down in both.
    torch.testing.assert_close(of_multiplier, torch.tensor([0.01 - 0.2, 0.01 - 0.002]))
    torch.testing.assert_close(of_kl, torch.full((2, 2), 0.5))


def test_target_is_the_mean_over_sampled_actions_and_the_reward_alone_after_termination() -> None:
    next_q = torch.tensor([[1.0, 9.0], [3.0, 9.0]])
    target = mpo_target(torch.tensor([1.0, 0.7]), torch.tensor([0.9, 0.0]), next_q)
    torch.testing.assert_close(target, torch.tensor([2.8, 0.7]), rtol=1e-6, atol=1e-6)
    assert target[1].item() == torch.tensor(0.7).item()


def test_dual_variables_start_where_asked_and_never_leave_the_positive_side() -> None:
    settings = {"initial_temperature": 0.3, "initial_mean_multiplier": 2.0, "initial_covariance_multiplier": 30.0}
    values = Duals(2, MPOConfig(**settings, penalty_kl=1e-3)).values()
    expected = {"temperature": [0.3], "mean": [2.0] * 2, "covariance": [30.0] * 2, "penalty": [0.3]}
    assert values.keys() == expected.keys()
    for name, value in values.items():
        np.testing.assert_allclose(value.detach(), expected[name], rtol=1e-5)
    assert "penalty" not in Duals(2, MPOConfig()).values()

    # Bounds that are never touched, at a huge learning rate: they fade to the floor and stay there.
    learner = make_learner("mpo", BOX, dual_learning_rate=5.0, mean_kl=1e3, covariance_kl=1e3, improvement_kl=1e3)
    for number in range(30):
        result = learner.update(make_batch(BOX, 8, number))
    assert learner.dual_optimizer.vector.min() == DUAL_FLOOR
    assert all(value.min() > 0 for value in learner.duals.values().values())
    assert all(torch.isfinite(value) for value in result.values())


def rows(batch: Transitions) -> Iterator[tuple[Tensor, ...]]:
    weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
    return zip(batch.obs, batch.actions, batch.rewards, batch.next_obs, batch.discounts, weights, strict=True)


class ReferenceMPO:
    """State by state, with ordinary modules, torch.distributions and torch.optim.Adam, from an equal random stream."""

    def __init__(self, learner: Any, settings: dict[str, Any]):
        self.settings, self.size = settings, learner.model.action_dim
        self.offset = learner.model_config.initial_log_std
        self.actor, self.critic = plain_copy(learner.model.policy_network), plain_copy(learner.model.critics[0])
        self.target_actor = plain_copy(learner.target.module.policy_network)
        self.target_critic = plain_copy(learner.target.module.critics[0])
        self.duals = {name: nn.Parameter(p.detach().clone()) for name, p in learner.duals.named_parameters()}
        rate = settings["learning_rate"]
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=rate)
        self.dual_optimizer = torch.optim.Adam(self.duals.values(), lr=1e-2)
        self.stream = Streams(learner.streams.seed)["policy_noise"]

    def policy(self, network: nn.Module, obs: Tensor) -> Normal:
        mean, log_std = network(obs).split(self.size)
        return Normal(torch.tanh(mean), (log_std + self.offset).exp())

    def q_value(self, critic: nn.Module, obs: Tensor, action: Tensor) -> Tensor:
        return critic(torch.cat([obs, action.clamp(-1, 1)]))[0]

    def update(self, batch: Transitions) -> list[float]:
        noise = self.stream.standard_normal((2, 5, *batch.actions.shape), dtype=np.float32)
        duals = {name: torch.log1p(parameter.exp()) for name, parameter in self.duals.items()}
        critic_losses, policy_losses, dual_losses, errors = [], [], [], []
        for b, (obs, action, reward, next_obs, discount, weight) in enumerate(rows(batch)):
            with torch.no_grad():
                following = self.policy(self.target_actor, next_obs)
                draws = [following.mean + following.stddev * torch.from_numpy(z) for z in noise[0, :, b]]
                values = [float(self.q_value(self.target_critic, next_obs, a)) for a in draws]
                y = float(reward + discount * np.mean(values))
                old = self.policy(self.target_actor, obs)
                samples = [old.mean + old.stddev * torch.from_numpy(z) for z in noise[1, :, b]]
                sample_q = torch.stack([self.q_value(self.target_critic, obs, a) for a in samples])
                outside = -torch.stack([(a - a.clamp(-1, 1)).norm() for a in samples])
            error = self.q_value(self.critic, obs, action) - y
            critic_losses.append(weight * error**2)
            errors.append(abs(error.item()))
            new = self.policy(self.actor, obs)
            moved, spread = Normal(new.mean, old.stddev), Normal(old.mean, new.stddev)
            shares = torch.softmax(sample_q / duals["temperature"].detach(), 0)
            temperature = duals["temperature"]
            dual = temperature * (0.1 + torch.logsumexp(sample_q / temperature, 0) - np.log(5))
            if "penalty" in duals:
                penalty = duals["penalty"]
                shares = shares + torch.softmax(outside / penalty.detach(), 0)
                dual = dual + penalty * (1e-3 + torch.logsumexp(outside / penalty, 0) - np.log(5))
            loss = torch.zeros(())
            for share, a in zip(shares, samples, strict=True):
                loss = loss - share * (moved.log_prob(a).sum() + spread.log_prob(a).sum())
            for name, kl, limit in (
                ("mean", kl_divergence(old, moved), 0.01),
                ("covariance", kl_divergence(old, spread), 0.001),
            ):
                loss = loss + (duals[name].detach() * kl).sum()
                dual = dual + (duals[name] * (limit - kl.detach())).sum()
            policy_losses.append(loss)
            dual_losses.append(dual.sum())
        for optimizer, losses in (
            (self.critic_optimizer, critic_losses),
            (self.actor_optimizer, policy_losses),
            (self.dual_optimizer, dual_losses),
        ):
            optimizer.zero_grad()
            (sum(losses) / len(losses)).backward()
            if self.settings.get("max_grad_norm"):
                parameters = optimizer.param_groups[0]["params"]
                nn.utils.clip_grad_norm_(parameters, self.settings["max_grad_norm"])
            optimizer.step()
        soft_update(self.target_actor, self.actor, self.settings["tau"])
        soft_update(self.target_critic, self.critic, self.settings["tau"])
        return errors


@pytest.mark.parametrize(
    "case",
    [{}, {"prioritized": True, "n_step": 3}, {"penalty_kl": 1e-3}, {"max_grad_norm": 1e-3}],
    ids=lambda case: "+".join(f"{key}={value}" for key, value in case.items()) or "plain",
)
def test_updates_equal_a_reference_written_by_hand(case: dict[str, Any]) -> None:
    settings = {"tau": 0.1, "num_action_samples": 5, "mean_kl": 0.01, "covariance_kl": 0.001} | case
    rates = {"actor_learning_rate": 2e-3, "critic_learning_rate": 2e-3}
    learner = make_learner("mpo", BOX, model={"initial_log_std": -0.3}, **settings, **rates)
    disturb(learner.target.module)
    reference = ReferenceMPO(learner, {"tau": 0.1, "learning_rate": 2e-3} | case)
    for number in range(3):
        weighted = case.get("prioritized", False)
        batch = make_batch(BOX, 8, number, weights=weighted, n_step=case.get("n_step", 1))
        result = learner.update(batch)
        errors = reference.update(batch)
        if weighted:
            np.testing.assert_allclose(result.priorities, errors, atol=1e-5)
        else:
            assert result.priorities is None
        for name, parameter in learner.duals.named_parameters():
            torch.testing.assert_close(parameter, reference.duals[name], rtol=0, atol=1e-5)
        assert_same_parameters(learner.model.policy_network, reference.actor, 1e-5)
        assert_same_parameters(learner.model.critics[0], reference.critic, 1e-5)
        assert_same_parameters(learner.target.module.policy_network, reference.target_actor, 1e-5)
        assert_same_parameters(learner.target.module.critics[0], reference.target_critic, 1e-5)
    assert learner.updates == 3


def test_metrics_of_an_update_are_named_and_finite() -> None:
    result = make_learner("mpo", BOX).update(make_batch(BOX, 8, 0))
    losses = {"critic_loss", "actor_loss", "policy_loss", "kl_penalty", "temperature_loss", "dual_loss"}
    values = {"q_mean", "target_q_mean", "policy_std", "temperature", "mean_multiplier", "covariance_multiplier"}
    distances = {"improvement_kl", "mean_kl", "covariance_kl", "critic_grad_norm", "actor_grad_norm"}
    assert set(result) == losses | values | distances
    assert all(torch.isfinite(value) and not value.requires_grad for value in result.values())


def test_metrics_say_how_far_samples_and_policy_are_from_the_target_policy() -> None:
    learner = make_learner("mpo", BOX, num_action_samples=4, initial_temperature=0.05)
    batch, target = make_batch(BOX, 8, 0), learner.target.module
    disturb(target)
    noise = Streams(learner.streams.seed)["policy_noise"].standard_normal((2, 4, 8, 2), dtype=np.float32)[1]
    with torch.no_grad():
        mean, log_std = target.actor(batch.obs)
        draws = [mean + log_std.exp() * torch.from_numpy(z) for z in noise]
        shares = torch.stack([target.q_values(batch.obs, actions)[0] for actions in draws]).div(0.05).softmax(0)
        new_mean, new_log_std = learner.model.actor(batch.obs)
        old = Normal(mean, log_std.exp())
    uniform = torch.distributions.Categorical(probs=torch.full((8, 4), 0.25))
    expected = kl_divergence(torch.distributions.Categorical(probs=shares.T), uniform).mean().item()
    metrics = {name: value.item() for name, value in learner.update(batch).items()}
    assert metrics["improvement_kl"] == pytest.approx(expected, rel=1e-3) and expected > 0.01
    assert metrics["policy_std"] == pytest.approx(new_log_std.exp().mean().item(), rel=1e-5)
    mean_kl = kl_divergence(old, Normal(new_mean, old.stddev)).mean().item()
    covariance_kl = kl_divergence(old, Normal(mean, new_log_std.exp())).mean().item()
    assert metrics["mean_kl"] == pytest.approx(mean_kl, rel=1e-4)
    assert metrics["covariance_kl"] == pytest.approx(covariance_kl, rel=1e-3)


@pytest.mark.parametrize("still", ["actor", "critic", "dual"])
def test_each_optimizer_moves_its_own_parameters_alone(still: str) -> None:
    learner = make_learner("mpo", BOX, **{f"{still}_learning_rate": 0.0})
    parts = {"actor": learner.model.policy_network, "critic": learner.model.critics, "dual": learner.duals}
    before = {name: snapshot(part) for name, part in parts.items()}
    for number in range(2):
        learner.update(make_batch(BOX, 8, number))
    assert {name for name, part in parts.items() if torch.equal(snapshot(part), before[name])} == {still}


def test_learning_rates_follow_their_schedules() -> None:
    schedule = {"start": 1e-2, "end": 0.0, "over": 10}
    names = ("actor_learning_rate", "critic_learning_rate", "dual_learning_rate")
    learner = make_learner("mpo", BOX, **dict.fromkeys(names, schedule))
    parts = (learner.model.policy_network, learner.model.critics, learner.duals)
    before = [snapshot(part) for part in parts]
    for env_steps, moves in ((10, False), (9, True)):
        learner.clock.env_steps = env_steps
        learner.update(make_batch(BOX, 8, 0))
        assert [not torch.equal(snapshot(p), b) for p, b in zip(parts, before, strict=True)] == [moves] * 3


def test_the_target_policy_is_refreshed_and_gets_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("mpo", BOX, tau=0.5)
    torch.testing.assert_close(snapshot(learner.target.module), snapshot(learner.model), rtol=0, atol=0)
    seen: list[Tensor] = []
    original = mpo_module.critic_loss

    def spy(q_values: Tensor, target: Tensor, weights: Tensor | None = None) -> Any:
        seen.append(target)
        return original(q_values, target, weights)

    monkeypatch.setattr(mpo_module, "critic_loss", spy)
    start = snapshot(learner.target.module.policy_network)
    learner.update(make_batch(BOX, 8, 0))
    assert len(seen) == 1 and seen[0].shape == (8,) and not seen[0].requires_grad
    halfway = (start + snapshot(learner.model.policy_network)) / 2
    torch.testing.assert_close(snapshot(learner.target.module.policy_network), halfway)
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.module.parameters())


@pytest.mark.parametrize("log_std", [0.0, 50.0, -50.0], ids=["usual", "above its limit", "below its limit"])
def test_acting_in_numpy_is_sampling_from_the_networks_policy_within_bounds(log_std: float) -> None:
    model = make_learner("mpo", BOX, model={"initial_log_std": -0.7}).model
    disturb(model)
    with torch.no_grad():
        model.policy_network[-1].bias[2:] += log_std
    obs = make_batch(BOX, 200, 0).obs
    with torch.no_grad():
        mean, deviation = model.actor(obs)[0], model.actor(obs)[1].exp()
    assert deviation.min() >= np.exp(-20) * 0.999 and deviation.max() <= np.exp(2) * 1.001
    np.testing.assert_allclose(model.act(obs.numpy()), mean, atol=1e-6)
    draws = torch.from_numpy(np.random.default_rng(5).standard_normal((200, 2), dtype=np.float32))
    sampled = model.act(obs.numpy(), np.random.default_rng(5))
    np.testing.assert_allclose(sampled, (mean + deviation * draws).clamp(-1, 1), atol=1e-5)
    if log_std == 0.0:
        assert 0.05 < (np.abs(sampled) == 1.0).mean() < 0.6


def test_a_sample_out_of_bounds_is_worth_the_action_at_the_bound() -> None:
    model = make_learner("mpo", BOX).model
    obs = make_batch(BOX, 4, 0).obs
    far = torch.tensor([[3.0, -5.0]]).expand(4, 2)
    torch.testing.assert_close(model.q_values(obs, far), model.q_values(obs, far.clamp(-1, 1)))
    stacked = torch.stack([far, torch.zeros(4, 2)])
    expected = torch.cat([model.q_values(obs, far), model.q_values(obs, torch.zeros(4, 2))])
    torch.testing.assert_close(model.q_value(obs, stacked), expected)


def test_the_penalty_prefers_samples_inside_the_bounds() -> None:
    """With a critic that is flat, only the penalty has a wish: a mean at the bound moves inside."""
    settings = {"actor_learning_rate": 1e-2, "critic_learning_rate": 0.0, "mean_kl": 1.0, "tau": 1.0}
    moved = {}
    for penalty in (None, 0.1):
        learner = make_learner("mpo", BOX, penalty_kl=penalty, **settings)
        with torch.no_grad():
            for critic in (learner.model.critics[0], learner.target.module.critics[0]):
                critic[-1].weight.zero_()
            for network in (learner.model.policy_network, learner.target.module.policy_network):
                network[-1].weight.zero_()
                network[-1].bias.copy_(torch.tensor([1.5, -1.5, 0.0, 0.0]))
        obs = make_batch(BOX, 64, 0).obs
        before = learner.model.actor(obs)[0].abs().mean()
        for number in range(40):
            learner.update(make_batch(BOX, 64, number))
        moved[penalty] = (learner.model.actor(obs)[0].abs().mean() - before).item()
    assert moved[0.1] < -0.2 and abs(moved[None]) < 0.05
