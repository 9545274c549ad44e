"""Initialization, shapes and outputs of the networks. tests/models/test_acting.py tests how they act."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from acting_models import OBS, ROWS, assert_acts_as_torch_says, build
from on_policy_helpers import SPACES, make_learner, model_config, parameters_of
from rl_training.models.mlp import mlp, numpy_forward
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_continuous import LOG_STD_MAX, LOG_STD_MIN
from rl_training.models.mlp_ppg import MLPPPGModel


def test_numpy_forward_refuses_layers_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="Softsign"):
        numpy_forward(nn.Sequential(nn.Linear(2, 2), nn.Softsign()))


@pytest.mark.parametrize("hidden_sizes", [(), (5,), (16, 8)])
def test_mlp_has_the_configured_layers(hidden_sizes: tuple[int, ...]) -> None:
    network = mlp(4, 3, model_config(hidden_sizes=hidden_sizes, activation="relu"), tanh_output=True)
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linear] == [*hidden_sizes, 3]
    assert sum(isinstance(layer, nn.ReLU) for layer in network) == len(hidden_sizes)
    assert isinstance(network[-1], nn.Tanh)
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(numpy_forward(network)(inputs.numpy()), network(inputs).detach(), atol=1e-5)


def gains(network: nn.Sequential) -> list[float]:
    """The one singular value of each orthogonal layer; it fails if a layer has more than one."""
    found = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            assert not layer.bias.any()
            values = torch.linalg.svdvals(layer.weight.detach())
            torch.testing.assert_close(values, values.mean().expand_as(values), rtol=1e-4, atol=1e-6)
            found.append(float(values.mean()))
    return found


@pytest.mark.parametrize("kind", SPACES)
def test_orthogonal_gains_of_the_actor_critic(kind: str) -> None:
    model = MLPActorCritic(SPACES[kind], model_config(hidden_sizes=(64, 32)))
    root = math.sqrt(2)
    assert gains(model.actor) == pytest.approx([root, root, 0.01], rel=1e-4)
    assert gains(model.critic) == pytest.approx([root, root, 1.0], rel=1e-4)


@pytest.mark.parametrize("hidden_sizes", [(), (32,), (64, 32)])
def test_orthogonal_gains_of_the_phasic_model(hidden_sizes: tuple[int, ...]) -> None:
    model = MLPPPGModel(SPACES["discrete"], model_config(hidden_sizes=hidden_sizes))
    root = math.sqrt(2)
    assert gains(model.trunk) == pytest.approx([root] * len(hidden_sizes), rel=1e-4)
    assert gains(nn.Sequential(model.policy_head)) == pytest.approx([0.01], rel=1e-4)
    assert gains(model.value_head) == pytest.approx([root, 1.0][-1 - len(hidden_sizes[-1:]) :], rel=1e-4)
    assert gains(model.auxiliary_head) == pytest.approx([1.0], rel=1e-4)


def test_without_orthogonal_initialization_layers_have_the_defaults_of_torch() -> None:
    torch.manual_seed(0)
    network = mlp(3, 2, model_config(hidden_sizes=(4,), orthogonal_init=False))
    torch.manual_seed(0)
    expected = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    assert torch.equal(parameters_of(network), parameters_of(expected))


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete", "multi_binary"])
def test_the_first_policy_is_nearly_uniform(kind: str) -> None:
    model = make_learner("ppo", kind, model={"hidden_sizes": (64, 64)}).model
    most = sum(math.log(n) for n in SPACES[kind].action_sizes)
    entropy = model.distribution.entropy(model.policy(ROWS))
    assert float(entropy.detach().min()) >= 0.99 * most


def test_the_initial_gaussian_has_the_configured_standard_deviation() -> None:
    model = MLPActorCritic(SPACES["box"], model_config(initial_log_std=-0.7))
    parameters = model.policy(ROWS).detach()
    assert parameters.shape == (40, 4)
    assert torch.equal(parameters[:, 2:], torch.full((40, 2), -0.7))


@pytest.mark.parametrize("kind", SPACES)
def test_stored_log_prob_is_that_of_the_stored_action(kind: str) -> None:
    learner = make_learner("ppo", kind, model={"normalize_observations": True})
    learner.observe(OBS)
    action = learner.act(OBS, explore=True)
    assert action.actions.shape == (40, *SPACES[kind].action_shape)
    log_probs, entropy, values = learner.model.evaluate_actions(ROWS, torch.from_numpy(action.actions))
    assert log_probs.shape == entropy.shape == values.shape == (40,)
    np.testing.assert_allclose(action.extras["log_probs"], log_probs.detach(), atol=1e-5)
    torch.testing.assert_close(values, learner.model.value(ROWS))


def test_gaussian_actions_are_stored_unclipped() -> None:
    """Actions are clipped only for the environment; the log-prob belongs to the sampled action."""
    learner = make_learner("ppo", "box", model={"initial_log_std": 1.0})
    actions = learner.act(OBS, explore=True).actions
    assert np.abs(actions).max() > 1
    sent = SPACES["box"].to_env_actions(actions)
    assert (sent >= np.float32([0, -2])).all() and (sent <= np.float32([3, 2])).all()


def test_policy_and_value_share_no_parameter() -> None:
    model = build("actor_critic_discrete")
    gradients = torch.autograd.grad(model.value(ROWS).sum(), list(model.actor.parameters()), allow_unused=True)
    assert gradients == (None,) * len(gradients)


def test_dueling_values_are_value_plus_centered_advantage() -> None:
    model = build("q_network_dueling")
    advantage, value = model.advantage(ROWS), model.state_value(ROWS)
    expected = value + advantage - advantage.mean(1, keepdim=True)
    torch.testing.assert_close(model.q_values(ROWS), expected)
    torch.testing.assert_close(model.q_values(ROWS).mean(1), value.squeeze(1))
    torch.testing.assert_close(model(ROWS), expected)


def test_critics_are_separate_and_the_first_is_alone_in_q_value() -> None:
    model = build("deterministic")
    actions = torch.rand(40, 2) * 2 - 1
    values = model.q_values(ROWS, actions)
    assert values.shape == (2, 40)
    assert not torch.allclose(values[0], values[1])
    torch.testing.assert_close(model.q_value(ROWS, actions), values[0])
    inputs = torch.cat([ROWS, actions], 1)
    torch.testing.assert_close(values[1], model.critics[1](inputs).squeeze(-1))


def test_squashed_gaussian_spread_is_bounded() -> None:
    model = build("squashed_gaussian")
    with torch.no_grad():
        model.policy_network[-1].bias[2:] = torch.tensor([1e3, -1e3])
    _, log_std = model.actor(ROWS)
    assert torch.equal(log_std[0].detach(), torch.tensor([LOG_STD_MAX, LOG_STD_MIN]))
    assert_acts_as_torch_says(model)
