"""TRPO: conjugate gradient and Fisher products against dense algebra, and what a policy step may and may not do."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from on_policy_helpers import (
    SPACES,
    batch_from,
    learn_from,
    make_learner,
    make_rollout,
    oracle_cases,
    parameters_of,
    slow_advantages,
    value_of,
)
from rl_training.algorithms import trpo
from rl_training.algorithms.common.natural_gradient import conjugate_gradient, fisher_product, flat_gradient
from rl_training.algorithms.common.on_policy import PolicyBatch, policy_batch
from rl_training.algorithms.trpo import trpo_loss
from rl_training.config.algorithms.trpo import TRPOConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.cnn.nature import NatureCNN

EVERY_KIND = pytest.mark.parametrize("kind", SPACES)
SMALL = {"minibatch_size": 8, "update_epochs": 2}


def positive_definite(seed: int, size: int = 6) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size))
    return torch.from_numpy(root @ root.T + 0.5 * np.eye(size)), torch.from_numpy(rng.standard_normal(size))


@pytest.mark.parametrize("seed", range(5))
def test_conjugate_gradient_equals_a_direct_solve(seed: int) -> None:
    matrix, target = positive_definite(seed)
    found = conjugate_gradient(lambda vector: matrix @ vector, target, steps=20, tolerance=1e-28)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, target), rtol=1e-9, atol=1e-11)


def test_conjugate_gradient_comes_closer_with_every_step_and_takes_no_more_than_allowed() -> None:
    matrix, target = positive_definite(1)
    exact = torch.linalg.solve(matrix, target)
    errors = []
    for steps in range(1, 7):
        products = []
        found = conjugate_gradient(lambda vector: products.append(1) or matrix @ vector, target, steps)  # noqa: B023
        assert len(products) == steps
        errors.append(float((found - exact) @ matrix @ (found - exact)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-10 * errors[0]


def test_conjugate_gradient_stops_where_it_is_done_or_cannot_go_on() -> None:
    products: list[Tensor] = []

    def identity(vector: Tensor) -> Tensor:
        products.append(vector)
        return vector

    target = torch.tensor([3.0, 4.0])
    assert torch.equal(conjugate_gradient(identity, target, 10), target) and len(products) == 1
    assert torch.equal(conjugate_gradient(identity, torch.zeros(2), 10), torch.zeros(2)) and len(products) == 1
    assert torch.equal(conjugate_gradient(lambda vector: -vector, target, 10), torch.zeros(2))
    assert torch.equal(target, torch.tensor([3.0, 4.0]))


def small_model(kind: str, seed: int = 0) -> Any:
    """An actor-critic in double precision, away from the nearly uniform first policy."""
    model = copy.deepcopy(make_learner("trpo", kind, seed=seed, model={"hidden_sizes": (4,)}).model).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def policy_parameters(model: Any) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if not name.startswith("critic.")}


class PolicyOf(torch.nn.Module):
    """Makes `policy` a module's forward, so that it can be called with other parameters."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, obs: Tensor) -> Tensor:
        return self.model.policy(obs)


def policy_at(model: Any, vector: Tensor, obs: Tensor) -> Tensor:
    named, offset = {}, 0
    for name, parameter in policy_parameters(model).items():
        named["model." + name] = vector[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()
    return functional_call(PolicyOf(model), named, (obs,))


def some_states(count: int = 5) -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).standard_normal((count, 3)))


def explicit_hessian(model: Any, obs: Tensor) -> Tensor:
    """The Hessian of mean KL(old || new) at new = old, entry by entry."""
    vector = torch.cat([p.detach().reshape(-1) for p in policy_parameters(model).values()])
    old = policy_at(model, vector, obs)

    def mean_kl(new: Tensor) -> Tensor:
        return model.distribution.kl(old, policy_at(model, new, obs)).mean()

    return torch.autograd.functional.hessian(mean_kl, vector)


def fisher_of(model: Any, obs: Tensor) -> Any:
    old = model.policy(obs).detach()
    kl = model.distribution.kl(old, model.policy(obs)).mean()
    return fisher_product(kl, list(policy_parameters(model).values()))


@EVERY_KIND
def test_fisher_products_equal_the_hessian_of_kl(kind: str) -> None:
    model, obs = small_model(kind), some_states()
    product, hessian = fisher_of(model, obs), explicit_hessian(model, obs)
    for column, unit in zip(hessian.T, torch.eye(len(hessian), dtype=torch.float64), strict=True):
        torch.testing.assert_close(product(unit), column, rtol=1e-8, atol=1e-10)


@EVERY_KIND
def test_fisher_products_are_never_negative_curvature(kind: str) -> None:
    model = small_model(kind, seed=1)
    product = fisher_of(model, some_states(40))
    size = sum(p.numel() for p in policy_parameters(model).values())
    for vector in torch.from_numpy(np.random.default_rng(0).standard_normal((20, size))):
        assert float(vector @ product(vector)) > 0


def test_fisher_matrix_is_the_mean_outer_product_of_scores() -> None:
    """The definition, with every action weighed by its probability: no KL is involved."""
    model, obs = small_model("discrete"), some_states()
    parameters = list(policy_parameters(model).values())
    expected = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64).diag()
    for state in obs:
        for action in range(4):
            log_prob = model.distribution.log_prob(model.policy(state[None]), torch.tensor([action]))[0]
            score = flat_gradient(log_prob, parameters)
            expected += log_prob.detach().exp() * torch.outer(score, score) / len(obs)
    product = fisher_of(model, obs)
    found = torch.stack([product(unit) for unit in torch.eye(len(expected), dtype=torch.float64)])
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_fisher_matrix_of_a_gaussian_deviation_is_two() -> None:
    """For log std, whatever the state: E[(z^2 - 1)^2] = 2."""
    model = small_model("box")
    product = fisher_of(model, some_states())
    size = sum(p.numel() for p in policy_parameters(model).values())
    first = torch.zeros(size, dtype=torch.float64)
    first[0] = 1.0
    torch.testing.assert_close(product(first), 2 * first)


def test_loss_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    log_probs, old, entropy, advantages = rng.standard_normal((4, 9))
    batch = batch_from(log_probs=old, advantages=advantages)
    tensors = torch.from_numpy(log_probs), torch.from_numpy(entropy)
    loss, metrics = trpo_loss(*tensors, batch, TRPOConfig(), entropy_coef=0.03)
    mean, deviation = advantages.mean(), advantages.std(ddof=1)
    policy = -sum(math.exp(p - o) * (a - mean) / deviation for p, o, a in zip(log_probs, old, advantages, strict=True))
    expected = {"loss": policy / 9 - 0.03 * entropy.mean(), "policy_loss": policy / 9, "entropy": entropy.mean()}
    assert float(loss) == pytest.approx(expected["loss"], abs=1e-7)
    assert {name: float(metric) for name, metric in metrics.items()} == pytest.approx(expected, abs=1e-7)


def test_gradient_at_the_old_policy_is_the_policy_gradient_of_rlax() -> None:
    [(inputs, outputs)] = oracle_cases("policy_gradient")
    logits = torch.from_numpy(inputs["logits"]).requires_grad_()
    log_softmax = logits.log_softmax(-1)
    log_probs = log_softmax.gather(1, torch.from_numpy(inputs["actions"])[:, None]).squeeze(1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    batch = batch_from(advantages=inputs["advantages"], log_probs=log_probs.detach().numpy())
    loss, _ = trpo_loss(log_probs, entropy, batch, TRPOConfig(normalize_advantages=False), entropy_coef=0.3)
    loss.backward()
    np.testing.assert_allclose(logits.grad, outputs["policy_gradient"] - 0.3 * outputs["entropy_gradient"], atol=1e-10)


def data_of(learner: Any, rollout: Any) -> PolicyBatch:
    settings = {"gamma": learner.config.gamma, "gae_lambda": learner.config.gae_lambda}
    return policy_batch(rollout, learner.model, **settings)


def torch_kl(kind: str, old: Tensor, new: Tensor) -> float:
    """Mean KL by torch's own distributions."""

    def distributions(parameters: Tensor) -> list[torch.distributions.Distribution]:
        if kind == "box":
            mean, log_std = parameters.split(2, -1)
            normal = torch.distributions.Normal(mean, log_std.exp())
            return [torch.distributions.Independent(normal, 1)]
        parts = parameters.split(SPACES[kind].action_sizes, -1)
        return [torch.distributions.Categorical(logits=part) for part in parts]

    pairs = zip(distributions(old), distributions(new), strict=True)
    return float(sum(torch.distributions.kl_divergence(p, q).mean() for p, q in pairs))


@pytest.mark.parametrize("seed", range(3))
@EVERY_KIND
def test_an_accepted_step_improves_the_surrogate_within_the_trust_region(kind: str, seed: int) -> None:
    learner = make_learner("trpo", kind, seed=seed, max_kl=0.03, **SMALL)
    for number in range(3):
        rollout = make_rollout(learner, 32, 10 * seed + number)
        data = data_of(learner, rollout)
        with torch.no_grad():
            old = learner.model.policy(data.obs)
        metrics = learner.policy_step(data)
        assert float(metrics["line_search_success"]) == 1
        with torch.no_grad():
            new = learner.model.policy(data.obs)
            log_probs = learner.model.distribution.log_prob(new, data.actions)
        kl = torch_kl(kind, old, new)
        assert 0.003 < kl <= 0.03 * (1 + 1e-4)
        assert float(metrics["approx_kl"]) == pytest.approx(kl, rel=1e-3)
        advantages = (data.advantages - data.advantages.mean()) / data.advantages.std()
        gain = float(((log_probs - data.log_probs).exp() * advantages).mean() - advantages.mean())
        assert gain > 0
        assert float(metrics["surrogate_improvement"]) == pytest.approx(gain, rel=1e-3, abs=1e-6)


@EVERY_KIND
def test_the_step_is_the_natural_gradient_scaled_to_the_trust_region(kind: str) -> None:
    """(F + damping I)^-1 g by a dense solve in double precision; the step's own scale has F alone."""
    learner = make_learner(
        "trpo", kind, model={"hidden_sizes": (4,)}, damping=0.2, conjugate_gradient_steps=60, max_kl=0.002, **SMALL
    )
    data = data_of(learner, make_rollout(learner, 32, 5))
    model, obs = copy.deepcopy(learner.model).double(), data.obs.double()
    hessian = explicit_hessian(model, obs).numpy()
    actions = data.actions.double() if kind == "box" else data.actions
    log_probs = model.distribution.log_prob(model.policy(obs), actions)
    advantages = (data.advantages - data.advantages.mean()) / data.advantages.std()
    surrogate = ((log_probs - data.log_probs).exp() * advantages).mean()
    gradient = flat_gradient(surrogate, list(policy_parameters(model).values())).numpy()
    direction = np.linalg.solve(hessian + 0.2 * np.eye(len(hessian)), gradient)
    full_step = direction * math.sqrt(2 * 0.002 / (direction @ hessian @ direction))
    before = learner.policy_vector.clone()
    metrics = learner.policy_step(data)
    share = 0.8 ** (float(metrics["line_search_steps"]) - 1)
    np.testing.assert_allclose(learner.policy_vector - before, share * full_step, atol=0.01 * np.abs(full_step).max())


@pytest.mark.parametrize("reason", ["surrogate", "kl"])
@EVERY_KIND
def test_a_failed_search_leaves_the_policy_as_it_was_to_the_last_bit(
    kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner("trpo", kind, line_search_steps=2, **SMALL)
    rollout = make_rollout(learner, 32, 3)
    obs = rollout.obs[0]
    vector, actions = learner.policy_vector.clone(), learner.act(obs, explore=False).actions
    critic = parameters_of(learner.model.critic)
    surrogate, kl = learner._surrogate, learner.model.distribution.kl
    tried: list[Tensor] = []

    def never_better(parameters: Tensor, data: PolicyBatch) -> Any:
        loss, metrics = surrogate(parameters, data)
        if not torch.is_grad_enabled():  # in the search
            tried.append(learner.policy_vector.clone())
            loss = loss + 100.0 * (reason == "surrogate")
        return loss, metrics

    def never_near(old: Tensor, new: Tensor) -> Tensor:
        return kl(old, new) + (0.02 if reason == "kl" and not torch.is_grad_enabled() else 0.0)

    monkeypatch.setattr(learner, "_surrogate", never_better)
    monkeypatch.setattr(learner.model.distribution, "kl", never_near)
    result = learner.update(rollout)
    assert (float(result["line_search_success"]), float(result["line_search_steps"])) == (0, 2)
    assert "approx_kl" not in result and "surrogate_improvement" not in result
    assert len(tried) == 2 and not any(torch.equal(vector, other) for other in tried)
    assert torch.equal(learner.policy_vector, vector)
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in learner.policy_parameters]), vector)
    np.testing.assert_array_equal(learner.act(obs, explore=False).actions, actions)
    assert not torch.equal(parameters_of(learner.model.critic), critic)
    assert all(torch.isfinite(value) for value in result.values())


def test_without_any_advantage_the_policy_stays_and_nothing_breaks() -> None:
    learner = make_learner("trpo", normalize_advantages=False, **SMALL)
    data = data_of(learner, make_rollout(learner, 16, 0))
    data.advantages.zero_()
    before = learner.policy_vector.clone()
    metrics = learner.policy_step(data)
    assert float(metrics["line_search_success"]) == 0
    assert torch.equal(learner.policy_vector, before)


@EVERY_KIND
def test_policy_step_and_value_fit_keep_to_their_own_parameters(kind: str) -> None:
    learner = make_learner("trpo", kind, **SMALL)
    data = data_of(learner, make_rollout(learner, 32, 0))
    policy, critic = learner.policy_vector.clone(), parameters_of(learner.model.critic)
    learner.policy_step(data)
    assert torch.equal(parameters_of(learner.model.critic), critic)
    assert not torch.equal(learner.policy_vector, policy)
    policy = learner.policy_vector.clone()
    learner.fit_critic(data)
    assert torch.equal(learner.policy_vector, policy)
    assert not torch.equal(parameters_of(learner.model.critic), critic)
    count = len(policy) + len(critic)
    assert count == sum(p.numel() for p in learner.model.parameters())


@EVERY_KIND
def test_acting_follows_the_policy_through_updates(kind: str) -> None:
    learner = make_learner("trpo", kind, max_kl=0.1, model={"normalize_observations": True}, **SMALL)
    for seed in range(3):
        rollout = make_rollout(learner, 32, seed)
        before = learner.model.policy_numpy(rollout.obs[0])
        learn_from(learner, rollout)
        found = learner.model.policy_numpy(rollout.obs[0])
        with torch.no_grad():
            np.testing.assert_allclose(found, learner.model.policy(torch.from_numpy(rollout.obs[0])), atol=1e-5)
        assert not np.allclose(found, before)


@pytest.mark.parametrize("next_step_resets", [False, True])
def test_the_loss_sees_every_valid_row_with_the_right_targets(
    next_step_resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner("trpo", gamma=0.9, gae_lambda=0.8, **SMALL)
    rollout = make_rollout(learner, 16, 1, next_step_resets=next_step_resets)
    expected = slow_advantages(rollout, rollout.rewards, value_of(learner.model), 0.9, 0.8)[rollout.valid]
    seen: list[PolicyBatch] = []
    original = trpo.trpo_loss

    def watched(log_probs: Tensor, entropy: Tensor, batch: PolicyBatch, *rest: Any, **options: Any) -> Any:
        seen.append(batch)
        return original(log_probs, entropy, batch, *rest, **options)

    monkeypatch.setattr(trpo, "trpo_loss", watched)
    learner.update(rollout)
    np.testing.assert_allclose(seen[0].advantages, expected, atol=1e-5)
    np.testing.assert_array_equal(seen[0].obs, rollout.obs[rollout.valid])


def test_schedules_reach_the_step_and_the_critic() -> None:
    settings = {"max_kl": {"start": 0.04, "end": 0.0}, "learning_rate": {"start": 0.01, "end": 0.0}}
    learner = make_learner("trpo", **settings, **SMALL)
    learner.clock.env_steps = 750
    result = learner.update(make_rollout(learner, 32, 0))
    assert 0.002 < float(result["approx_kl"]) <= 0.01
    assert float(result["learning_rate"]) == pytest.approx(0.0025)
    assert float(learner.critic_optimizer.learning_rate) == pytest.approx(0.0025)


def test_gradients_of_the_critic_are_clipped_to_the_configured_norm() -> None:
    first_moments = []
    for limit in (None, 0.01):
        learner = make_learner("trpo", max_grad_norm=limit, minibatch_size=64, update_epochs=1)
        metrics = learner.fit_critic(data_of(learner, make_rollout(learner, 16, 0)))
        assert int(learner.critic_optimizer.steps) == 1
        norm, moment = float(metrics["critic_grad_norm"]), learner.critic_optimizer.first_moment
        assert norm > 0.1, "the gradient is within the limit: this test would prove nothing"
        # After one step of Adam the first moment is a tenth of the gradient that was applied.
        assert float(moment.norm()) == pytest.approx(0.1 * (norm if limit is None else limit), rel=1e-3)
        first_moments.append(moment)
    torch.testing.assert_close(first_moments[0] * (0.01 / norm), first_moments[1], rtol=1e-3, atol=1e-8)


def test_value_fit_takes_every_epoch_and_lowers_the_error() -> None:
    learner = make_learner("trpo", learning_rate=0.01, minibatch_size=8, update_epochs=30)
    data = data_of(learner, make_rollout(learner, 16, 0))

    @torch.no_grad()
    def error() -> float:
        return float((learner.model.value(data.obs) - data.returns).square().mean())

    before = error()
    learner.fit_critic(data)
    assert error() < 0.7 * before
    assert int(learner.critic_optimizer.steps) == 30 * 4


def test_fitting_the_critic_of_images_trains_an_encoder_of_its_own() -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (1, 36, 36), np.uint8), gym.spaces.Discrete(3))
    learner = make_learner("trpo", spaces, model={"hidden_sizes": (), "encoder_size": 4}, minibatch_size=8)
    obs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (8, 1, 36, 36), dtype=np.uint8))
    columns = [torch.zeros(8) for _ in range(4)]
    policy, value = learner.model.policy(obs).detach(), learner.model.value(obs).detach()
    critic_s_own = [part.detach().clone() for part in learner.model.critic[0].parameters()]
    learner.fit_critic(PolicyBatch(obs, torch.zeros(8, dtype=torch.int64), *columns[:3], torch.ones(8)))
    assert torch.equal(learner.model.policy(obs), policy) and not torch.equal(learner.model.value(obs), value)
    assert any(not torch.equal(*pair) for pair in zip(critic_s_own, learner.model.critic[0].parameters(), strict=True))
    assert isinstance(learner.model.critic[0], NatureCNN)
