"""Networks: initialisation, shapes, and acting in NumPy equal to the torch path whatever happened to the weights."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from on_policy_helpers import SPACES, make_learner, model_config, parameters_of
from rl_training.algorithms.updates import Optimizer, TargetNetwork
from rl_training.models.mlp import mlp, numpy_forward
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_continuous import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    MLPDeterministicActorCritic,
    MLPSquashedGaussianActorCritic,
)
from rl_training.models.mlp_mpo import MLPMPOModel
from rl_training.models.mlp_naf import MLPNAFModel
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_q import MLPQNetwork
from rl_training.models.policy import PolicyModel

OBS = np.random.default_rng(0).normal(2.0, 3.0, (40, 3)).astype(np.float32)
ROWS = torch.from_numpy(OBS)

Build = Callable[..., Any]
MODELS: dict[str, Build] = {
    "actor_critic_discrete": lambda config: MLPActorCritic(SPACES["discrete"], config),
    "actor_critic_multi_discrete": lambda config: MLPActorCritic(SPACES["multi_discrete"], config),
    "actor_critic_multi_binary": lambda config: MLPActorCritic(SPACES["multi_binary"], config),
    "actor_critic_box": lambda config: MLPActorCritic(SPACES["box"], config),
    "ppg_multi_discrete": lambda config: MLPPPGModel(SPACES["multi_discrete"], config),
    "ppg_box": lambda config: MLPPPGModel(SPACES["box"], config),
    "q_network": lambda config: MLPQNetwork(SPACES["discrete"], config),
    "q_network_dueling": lambda config: MLPQNetwork(SPACES["discrete"], config, dueling=True),
    "naf": lambda config: MLPNAFModel(SPACES["box"], config),
    "mpo": lambda config: MLPMPOModel(SPACES["box"], config),
    "deterministic": lambda config: MLPDeterministicActorCritic(SPACES["box"], config, num_critics=2),
    "squashed_gaussian": lambda config: MLPSquashedGaussianActorCritic(SPACES["box"], config),
}


def build(name: str, seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    model = MODELS[name](model_config(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            # Away from the near-zero heads and biases of initialisation, or a dropped bias would not show.
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def torch_outputs(model: Any, obs: np.ndarray = OBS) -> np.ndarray:
    """What decides the action, from torch."""
    rows = torch.from_numpy(obs)
    with torch.no_grad():
        if isinstance(model, PolicyModel):
            return model.policy(rows).numpy()
        if isinstance(model, MLPQNetwork):
            return model.q_values(rows).numpy()
        if isinstance(model, (MLPDeterministicActorCritic, MLPNAFModel)):
            return model.actor(rows).numpy()
        return torch.cat(model.actor(rows), -1).numpy()


def assert_acts_as_torch_says(model: Any) -> None:
    before = OBS.copy()
    expected = torch_outputs(model)
    if isinstance(model, PolicyModel):
        np.testing.assert_allclose(model.policy_numpy(OBS), expected, atol=1e-5)
        np.testing.assert_allclose(model.act(OBS)[0], model.distribution.mode(expected), atol=1e-5)
        actions, extras = model.act(OBS, np.random.default_rng(1))
        expected_actions, expected_log_probs = model.distribution.sample(expected, np.random.default_rng(1))
        np.testing.assert_allclose(actions, expected_actions, atol=1e-5)
        np.testing.assert_allclose(extras["log_probs"], expected_log_probs, atol=1e-5)
    elif isinstance(model, MLPQNetwork):
        np.testing.assert_array_equal(model.greedy_actions(OBS), expected.argmax(1))
    elif isinstance(model, (MLPDeterministicActorCritic, MLPNAFModel)):
        np.testing.assert_allclose(model.act(OBS), expected, atol=1e-5)
        if isinstance(model, MLPNAFModel):
            actions, factors = model.act_with_factor(OBS)
            np.testing.assert_allclose(actions, expected, atol=1e-5)
            with torch.no_grad():
                np.testing.assert_allclose(factors, model.factor(ROWS), rtol=1e-4, atol=1e-5)
    elif isinstance(model, MLPMPOModel):
        mean, log_std = np.split(expected, 2, 1)
        np.testing.assert_allclose(model.act(OBS), mean, atol=1e-5)
        noise = np.random.default_rng(1).standard_normal(mean.shape, dtype=np.float32)
        sampled = np.clip(mean + np.exp(log_std) * noise, -1.0, 1.0)
        np.testing.assert_allclose(model.act(OBS, np.random.default_rng(1)), sampled, atol=1e-4)
    else:
        mean, log_std = np.split(expected, 2, 1)
        np.testing.assert_allclose(model.act(OBS), np.tanh(mean), atol=1e-5)
        noise = np.random.default_rng(1).standard_normal(mean.shape, dtype=np.float32)
        found = model.act(OBS, np.random.default_rng(1))
        np.testing.assert_allclose(found, np.tanh(mean + np.exp(log_std) * noise), atol=1e-5)
        with torch.no_grad():
            np.testing.assert_allclose(found, model.sample(ROWS, torch.from_numpy(noise))[0], atol=1e-5)
    np.testing.assert_array_equal(OBS, before)


def learn_a_little(model: Any, optimizer: Optimizer) -> None:
    optimizer.set_learning_rate(0.05)
    outputs = model.policy(ROWS) if isinstance(model, PolicyModel) else None
    if outputs is None:
        acting = model.network if isinstance(model, MLPNAFModel) else getattr(model, "policy_network", None)
        outputs = model.q_values(ROWS) if acting is None else acting(ROWS)
    # Every parameter takes part, so that the gradient of all of them exists.
    optimizer.step(outputs.square().mean() + sum(p.square().sum() for p in model.parameters()) * 0.01)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_acting_in_numpy_follows_the_torch_model(name: str, normalize: bool, activation: str) -> None:
    model = build(name, activation=activation, normalize_observations=normalize, observation_clip=1.5)
    optimizer = Optimizer(model.parameters())
    assert_acts_as_torch_says(model)
    if normalize:
        raw = torch_outputs(model)
        model.normalizer.update(OBS)
        assert not np.allclose(torch_outputs(model), raw)
        assert_acts_as_torch_says(model)
    for _ in range(3):
        before = torch_outputs(model)
        learn_a_little(model, optimizer)
        assert not np.allclose(torch_outputs(model), before)
        assert_acts_as_torch_says(model)
    other = build(name, seed=1, activation=activation, normalize_observations=normalize, observation_clip=1.5)
    model.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(torch_outputs(model), torch_outputs(other))
    assert_acts_as_torch_says(model)


@pytest.mark.parametrize("name", MODELS)
def test_target_copies_act_by_their_own_weights(name: str) -> None:
    model = build(name)
    optimizer = Optimizer(model.parameters())
    assert_acts_as_torch_says(model)
    target = TargetNetwork(model)
    learn_a_little(model, optimizer)
    assert not np.allclose(torch_outputs(target.module), torch_outputs(model))
    assert_acts_as_torch_says(target.module)
    target.follow(0.5)
    assert_acts_as_torch_says(target.module)
    target.follow()
    np.testing.assert_array_equal(torch_outputs(target.module), torch_outputs(model))
    assert_acts_as_torch_says(target.module)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("name", MODELS)
def test_copies_of_a_model_that_has_acted_act_by_their_own_weights(name: str, clone: Callable[[Any], Any]) -> None:
    model = build(name)
    optimizer = Optimizer(model.parameters())
    assert_acts_as_torch_says(model)
    copied = clone(model)
    learn_a_little(model, optimizer)
    assert not np.allclose(torch_outputs(copied), torch_outputs(model))
    assert_acts_as_torch_says(copied)
    assert_acts_as_torch_says(model)


def test_numpy_forward_refuses_layers_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="GELU"):
        numpy_forward(nn.Sequential(nn.Linear(2, 2), nn.GELU()))


@pytest.mark.parametrize("hidden_sizes", [(), (5,), (16, 8)])
def test_mlp_has_the_layers_asked_for(hidden_sizes: tuple[int, ...]) -> None:
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


def test_without_orthogonal_initialization_layers_are_as_torch_makes_them() -> None:
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


def test_the_first_gaussian_has_the_configured_deviation_everywhere() -> None:
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
    """Clipping happens on the way to the env: the log-prob belongs to the action as it was drawn."""
    learner = make_learner("ppo", "box", model={"initial_log_std": 1.0})
    actions = learner.act(OBS, explore=True).actions
    assert np.abs(actions).max() > 1
    sent = SPACES["box"].to_env_actions(actions)
    assert (sent >= np.float32([0, -2])).all() and (sent <= np.float32([3, 2])).all()


def test_policy_and_value_share_no_parameter() -> None:
    model = build("actor_critic_discrete")
    gradients = torch.autograd.grad(model.value(ROWS).sum(), list(model.actor.parameters()), allow_unused=True)
    assert gradients == (None,) * len(gradients)


def test_dueling_values_are_value_plus_centred_advantage() -> None:
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
