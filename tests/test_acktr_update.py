"""ACKTR's loss and Fisher matrix, its whole update against NumPy, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from config_cases import refused
from on_policy_helpers import SPACES, make_learner, make_rollout
from rl_training.algorithms.acktr import LOG_STD_FISHER, acktr_loss, sampled_loss
from rl_training.algorithms.common.natural_gradient import fisher_product, flat_gradient
from rl_training.algorithms.common.on_policy import PolicyBatch, policy_batch
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.acktr import ACKTRConfig
from rl_training.config.loading import load_config
from rl_training.envs.spaces import Spaces
from rl_training.experiment.registry import get_spec

EVERY_KIND = pytest.mark.parametrize("kind", SPACES)
PLAIN: dict[str, Any] = {"momentum": 0.0, "learning_rate": 0.1, "max_kl": 1e9, "inverse_every": 1, "num_steps": 6}


def slow_loss(log_probs: Any, entropy: Any, values: Any, batch: PolicyBatch, config: ACKTRConfig) -> float:
    total = 0.0
    for i in range(len(batch)):
        advantage, error = float(batch.advantages[i]), float(batch.returns[i]) - float(values[i])
        total += -float(log_probs[i]) * advantage + config.value_coef * 0.5 * error**2 - 0.01 * float(entropy[i])
    return total / len(batch)


def test_the_loss_is_that_of_advantage_actor_critic() -> None:
    learner = make_learner("acktr", "discrete", **PLAIN)
    batch = policy_batch(make_rollout(learner, 6, 0), learner.model, gamma=0.9, gae_lambda=1.0)
    with torch.no_grad():
        outputs = learner.model.evaluate_actions(batch.obs, batch.actions)
    loss, metrics = acktr_loss(*outputs, batch, learner.config, entropy_coef=0.01)
    assert loss.item() == pytest.approx(slow_loss(*outputs, batch, learner.config), rel=1e-5)
    assert metrics["loss"] == loss


def test_gradients_of_the_sampled_loss_are_scores_of_the_model() -> None:
    """In the logits one_hot(a) - p, in the value the noise times sqrt(c): for each row, not divided by the batch."""
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    values = torch.zeros(5, requires_grad=True)
    actions, noise = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    log_probs = logits.log_softmax(1).gather(1, actions[:, None]).squeeze(1)
    sampled_loss(log_probs, values, noise, 4.0).backward()
    expected = logits.detach().softmax(1) - torch.nn.functional.one_hot(actions, 3)
    assert logits.grad is not None and values.grad is not None
    np.testing.assert_allclose(logits.grad, expected, atol=1e-6)
    np.testing.assert_allclose(values.grad, -2.0 * noise, atol=1e-6)


@EVERY_KIND
def test_an_update_is_the_damped_inverse_of_every_layer(kind: str) -> None:
    """The parameters after an update, against numpy.kron and numpy.linalg.solve, layer by layer."""
    settings = {**PLAIN, "gamma": 0.9, "gae_lambda": 0.8, "entropy_coef": {"start": 0.06, "end": 0.0}}
    learner = make_learner("acktr", kind, model={"hidden_sizes": (4,)}, **settings)
    learner.clock.env_steps = learner.total_timesteps // 2
    rollout = make_rollout(learner, 6, 0)
    batch = policy_batch(rollout, learner.model, gamma=0.9, gae_lambda=0.8)
    outputs = learner.model.evaluate_actions(batch.obs, batch.actions)
    loss = acktr_loss(*outputs, batch, learner.config, entropy_coef=0.03)[0]
    parameters = list(learner.model.parameters())
    gradients = {id(p): g for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True)}
    before = {id(p): p.detach().clone() for p in parameters}
    result = learner.update(rollout)
    assert result["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    checked = 0
    for factors in learner.optimizer.factors:
        weight, bias = factors.layer.weight, factors.layer.bias
        gradient = torch.cat([gradients[id(weight)], gradients[id(bias)][:, None]], 1)
        fisher = np.kron(factors.outputs.double().numpy(), factors.inputs.double().numpy())
        step = np.linalg.solve(fisher + 0.01 * np.eye(len(fisher)), gradient.double().numpy().ravel())
        moved = torch.cat([before[id(weight)] - weight, (before[id(bias)] - bias)[:, None]], 1)
        np.testing.assert_allclose(moved.detach().ravel(), 0.1 * step, rtol=2e-2, atol=2e-5)
        checked += moved.numel()
    if learner.model.log_std is not None:
        name = id(learner.model.log_std)
        moved = before[name] - learner.model.log_std.detach()
        np.testing.assert_allclose(moved, 0.1 * gradients[name] / (LOG_STD_FISHER + 0.01), rtol=1e-3)
        checked += moved.numel()
    assert checked == sum(p.numel() for p in parameters)


def test_for_a_linear_policy_the_step_is_the_exact_natural_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One observation, a uniform policy, and every action sampled equally often: the factors are exact."""
    learner = make_learner("acktr", "discrete", model={"hidden_sizes": ()}, **PLAIN)
    model, actions = learner.model, SPACES["discrete"].action_sizes[0]
    with torch.no_grad():
        for parameter in model.actor.parameters():
            parameter.zero_()
    obs = torch.tensor([[0.5, -1.0, 2.0]]).repeat(2 * actions, 1)
    every = np.tile(np.arange(actions), 2)
    monkeypatch.setattr(model.distribution, "sample", lambda parameters, rng: (every, None))
    policy = list(model.actor.parameters())
    kl = model.distribution.kl(model.policy(obs).detach(), model.policy(obs)).mean()
    product = fisher_product(kl, policy)
    fisher = torch.stack([product(row) for row in torch.eye(sum(p.numel() for p in policy))], 1)
    with learner.optimizer.watching():
        parameters, values = model.policy_and_value(obs)
    learner.optimizer.observe(learner._sampled_loss(parameters, values))
    loss = -(model.distribution.log_prob(parameters, torch.zeros(len(obs), dtype=torch.int64))).mean()
    gradient = flat_gradient(loss, policy)
    everything = torch.zeros(sum(p.numel() for p in model.parameters()))
    offset = 0
    places: dict[int, slice] = {}
    for parameter in model.parameters():
        places[id(parameter)] = slice(offset, offset + parameter.numel())
        offset += parameter.numel()
    for parameter, part in zip(policy, gradient.split([p.numel() for p in policy]), strict=True):
        everything[places[id(parameter)]] = part
    found, _ = learner.optimizer.natural(everything)
    mine = torch.cat([found[places[id(parameter)]] for parameter in policy])
    exact = torch.linalg.solve(fisher + 0.01 * torch.eye(len(fisher)), gradient)
    np.testing.assert_allclose(mine, exact, rtol=1e-3, atol=1e-4)


def test_the_fisher_matrix_of_the_log_std_is_the_known_one() -> None:
    """Against the Hessian of the KL divergence, at any deviation and in any state."""
    model = make_learner("acktr", "box", model={"initial_log_std": -0.7}, **PLAIN).model
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    kl = model.distribution.kl(model.policy(obs).detach(), model.policy(obs)).mean()
    product = fisher_product(kl, [model.log_std])
    np.testing.assert_allclose(torch.stack([product(row) for row in torch.eye(2)]), 2.0 * torch.eye(2), atol=1e-5)
    assert LOG_STD_FISHER == 2.0


@EVERY_KIND
def test_the_statistics_come_from_sampled_actions_and_not_from_those_taken(kind: str) -> None:
    learner = make_learner("acktr", kind, **PLAIN)
    rollout = make_rollout(learner, 6, 0)
    factors = []
    for change in (False, True):
        twin = copy.deepcopy(learner)
        other = copy.deepcopy(rollout)
        if change:
            other.actions[:] = other.actions[::-1].copy()
            other.rewards[:] = 7.0
        twin.update(other)
        factors.append([layer.outputs.clone() for layer in twin.optimizer.factors])
    assert all(torch.equal(*pair) for pair in zip(*factors, strict=True))
    # Another draw of the same policy gives other statistics.
    again = copy.deepcopy(learner)
    again.streams["fisher"].random(3)
    again.update(copy.deepcopy(rollout))
    assert not torch.equal(again.optimizer.factors[0].outputs, factors[0][0])


@pytest.mark.parametrize("max_kl", [1e-4, 1e-2])
def test_the_policy_moves_about_as_far_as_the_bound_says(max_kl: float) -> None:
    # Without hidden layers: the factors ignore how the layers of a network depend on each other.
    settings = {**PLAIN, "learning_rate": 100.0, "max_kl": max_kl}
    learner = make_learner("acktr", "discrete", model={"hidden_sizes": ()}, **settings)
    old = copy.deepcopy(learner.model)
    rollout = make_rollout(learner, 60, 1)
    result = learner.update(rollout)
    assert float(result["predicted_kl"]) == pytest.approx(max_kl, rel=1e-3)
    obs = torch.from_numpy(rollout.obs.reshape(-1, 3))
    with torch.no_grad():
        kl = learner.model.distribution.kl(old.policy(obs), learner.model.policy(obs)).mean()
        moved = 0.5 * (old.value(obs) - learner.model.value(obs)).square().mean()
    assert max_kl / 2 < float(kl + moved) < 2 * max_kl  # policy and value share the bound


def test_schedules_reach_the_step() -> None:
    learner = make_learner(
        "acktr", "discrete", **{**PLAIN, "learning_rate": {"start": 0.1, "end": 0.0}, "max_kl": {"start": 1, "end": 0}}
    )
    learner.clock.env_steps = learner.total_timesteps // 2
    learner.update(make_rollout(learner, 6, 0))
    assert float(learner.optimizer.learning_rate) == 0.05 and float(learner.optimizer.max_kl) == 0.5
    learner.clock.env_steps = learner.total_timesteps
    before = [p.detach().clone() for p in learner.model.parameters()]
    result = learner.update(make_rollout(learner, 6, 1))
    assert all(torch.equal(*pair) for pair in zip(before, learner.model.parameters(), strict=True))
    assert float(result["learning_rate"]) == 0.0


def test_images_and_a_shared_encoder_take_natural_steps() -> None:
    spaces = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(3))
    settings = {"algo": "acktr", "env_id": "Env-v0", "num_envs": 2}
    settings |= {"model": {"hidden_sizes": (), "encoder_size": 8}, "algo_kwargs": PLAIN}
    learner: Any = get_spec("acktr").learner(spaces, load_config(settings), Streams(0))
    obs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (8, 2, 36, 36), dtype=np.uint8))
    zeros = torch.zeros(8)
    batch = PolicyBatch(obs, torch.zeros(8, dtype=torch.int64), zeros, zeros, torch.ones(8), torch.ones(8))
    before: list[Tensor] = [p.detach().clone() for p in learner.model.parameters()]
    learner.set_learning_rates()
    learner.optimizer.max_kl.fill_(1.0)
    metrics = learner._gradient_step(batch)
    assert all(torch.isfinite(value) for value in metrics.values())
    assert len(learner.optimizer.factors) == 6 and all(factor.inputs.any() for factor in learner.optimizer.factors)
    moved = [not torch.equal(old, new) for old, new in zip(before, learner.model.parameters(), strict=True)]
    assert all(moved)


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"model": {"layer_norm": True}}, "model.layer_norm", "set model.layer_norm=false"),
        ({"model": {"blocks": "simba"}}, "model.blocks", "set model.blocks=mlp"),
        ({"model": {"critic": {"layer_norm": True}}}, "model.critic.layer_norm", "set model.critic.layer_norm=false"),
        ({"algo_kwargs": {"damping": 0}}, "algo_kwargs.damping", "0"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings: dict[str, Any], key: str, words: str) -> None:
    message = refused({"algo": "acktr", "env_id": "Env-v0", **settings})
    assert message.startswith(f"{key}: ") and words in message and "\n" not in message


def test_compiling_is_refused_with_the_reason() -> None:
    assert (
        ACKTRConfig().why_not_compilable()
        == "watches the layers of its networks with hooks, and has no step to compile"
    )
