"""State-dependent exploration (gSDE): its distribution, its matrices, and what PPO, A2C and SAC do with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from on_policy_helpers import SPACES as SMALL_SPACES
from on_policy_helpers import make_learner, make_rollout, model_config, oracle_cases
from rl_training.algorithms.common.state_exploration import NoiseMatrices
from rl_training.config.algorithm_table import ALGORITHMS as TABLE
from rl_training.config.algorithm_table import get_config_class
from rl_training.config.loading import load_config
from rl_training.errors import ConfigError
from rl_training.models.distributions import DiagonalGaussian, squashed_gaussian
from rl_training.models.layers.exploration_head import StateNoiseHead
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_continuous import MLPSquashedGaussianActorCritic

NOISE = {"state_dependent_noise": True, "noise_log_std": -1.0}
ON_POLICY = {"num_steps": 6}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {**ON_POLICY, "minibatch_size": 4, **NOISE},
    "a2c": {**ON_POLICY, **NOISE},
    "sac": NOISE,
    "tqc": NOISE,
}


def head_of(inputs: dict[str, Any]) -> StateNoiseHead:
    actions, features = inputs["weight"].shape
    head = StateNoiseHead(nn.Linear(features, actions), 0.0, learn_features=inputs["learn_features"])
    with torch.no_grad():
        for parameter, name in ((head.mean.weight, "weight"), (head.mean.bias, "bias"), (head.log_std, "log_std")):
            parameter.copy_(torch.from_numpy(inputs[name]))
    return head


def test_every_algorithm_that_has_the_setting_is_tested_here() -> None:
    having = {name for name in TABLE if "state_dependent_noise" in get_config_class(name).model_fields}
    assert having == set(ALGORITHMS)


@pytest.mark.parametrize(("inputs", "outputs"), oracle_cases("state_noise"))
def test_distribution_and_gradients_equal_those_of_stable_baselines3(
    inputs: dict[str, Any], outputs: dict[str, Any]
) -> None:
    head = head_of(inputs)
    features = torch.from_numpy(inputs["features"].astype(np.float32)).requires_grad_()
    parameters = head(features)
    mean, log_std = parameters.chunk(2, -1)
    source = features if inputs["learn_features"] else features.detach()
    noise = source @ (torch.from_numpy(inputs["matrix"].astype(np.float32)) * head.log_std.exp())
    if inputs["squashed"]:
        # The noise of the given matrix, in units of the deviation of its row.
        actions, log_probs = squashed_gaussian(mean, log_std, noise * (-log_std).exp())
        log_probs.sum().backward()
        tolerance = 2e-4  # theirs adds 1e-6 inside the logarithm of the correction
    else:
        distribution = DiagonalGaussian(mean.shape[1])
        actions = mean + noise
        log_probs, entropy = distribution.log_prob(parameters, actions.detach()), distribution.entropy(parameters)
        np.testing.assert_allclose(entropy.detach(), outputs["entropy"], rtol=1e-5)
        (log_probs.sum() + 0.3 * entropy.sum()).backward()
        tolerance = 1e-5
    np.testing.assert_allclose(actions.detach(), outputs["actions"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(log_probs.detach(), outputs["log_probs"], rtol=tolerance, atol=tolerance)
    leaves = {"features": features, "weight": head.mean.weight, "bias": head.mean.bias, "log_std": head.log_std}
    for name, leaf in leaves.items():
        np.testing.assert_allclose(
            leaf.grad, outputs["gradients"][name], rtol=10 * tolerance, atol=10 * tolerance, err_msg=name
        )


def test_deviation_and_log_probability_equal_the_slow_formula() -> None:
    inputs = oracle_cases("state_noise")[0][0]
    parameters = head_of(inputs)(torch.from_numpy(inputs["features"].astype(np.float32))).detach().double().numpy()
    actions = np.random.default_rng(0).normal(size=(5, 2))
    found = DiagonalGaussian(2).log_prob(torch.from_numpy(parameters), torch.from_numpy(actions))
    for row, z in enumerate(inputs["features"]):
        log_prob = 0.0
        for j in range(2):
            mean = inputs["bias"][j] + sum(inputs["weight"][j][i] * z[i] for i in range(4))
            variance = 1e-6 + sum(z[i] ** 2 * math.exp(inputs["log_std"][i][j]) ** 2 for i in range(4))
            log_prob -= 0.5 * (actions[row][j] - mean) ** 2 / variance + 0.5 * math.log(2 * math.pi * variance)
        assert found[row].item() == pytest.approx(log_prob, rel=1e-5)


def test_noise_of_random_matrices_has_the_deviation_that_the_losses_use() -> None:
    head = head_of(oracle_cases("state_noise")[0][0])
    features = np.tile(np.float32([[0.5, -1.0, 2.0, 0.1]]), (20_000, 1))
    noise = head.noise_numpy(features, np.random.default_rng(0).standard_normal((20_000, 4, 2), dtype=np.float32))
    log_std = head.numpy(features[:1])[0, 2:]
    np.testing.assert_allclose(noise.std(0), np.exp(log_std), rtol=0.02)
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.05)


def test_matrices_stay_until_their_interval_ends_or_an_episode_starts() -> None:
    noise, rng = NoiseMatrices(interval=3), np.random.default_rng(0)
    starts = np.zeros((8, 2), bool)
    starts[0] = True
    starts[4, 1] = True
    seen = [noise.at((2, 4, 1), row, rng).copy() for row in starts]
    changed = [[t for t in range(1, 8) if not np.array_equal(seen[t][env], seen[t - 1][env])] for env in (0, 1)]
    assert changed == [[3, 6], [3, 4, 7]]
    assert not np.array_equal(seen[0][0], seen[0][1]), "every env has its own matrix"


def test_without_an_interval_a_matrix_lasts_an_episode() -> None:
    noise, rng = NoiseMatrices(interval=None), np.random.default_rng(0)
    first = noise.at((1, 3, 1), np.array([True]), rng).copy()
    for _ in range(50):
        np.testing.assert_array_equal(noise.at((1, 3, 1), np.array([False]), rng), first)
    assert not np.array_equal(noise.at((1, 3, 1), np.array([True]), rng), first)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_equal_states_get_equal_noise_and_judged_actions_have_none(algo: str) -> None:
    learner = make_learner(algo, "box", **ALGORITHMS[algo])
    rows = np.float32([[0.3, -0.2, 1.0], [0.3, -0.2, 1.0]])
    starts, later = np.array([True, True]), np.array([False, False])
    first = learner.act(rows, explore=True, episode_starts=starts).actions
    np.testing.assert_array_equal(learner.act(rows, explore=True, episode_starts=later).actions, first)
    assert not np.allclose(first[0], first[1]), "each env has its own noise"
    assert not np.allclose(learner.act(-rows, explore=True, episode_starts=later).actions, first)
    position = learner.streams["exploration"].bit_generator.state
    judged = learner.act(rows, explore=False).actions
    np.testing.assert_array_equal(judged[0], judged[1])
    assert learner.streams["exploration"].bit_generator.state == position


@pytest.mark.parametrize("hidden_sizes", [(8, 8), ()])
def test_acting_stores_the_log_probability_that_the_update_recomputes(hidden_sizes: tuple[int, ...]) -> None:
    learner = make_learner("ppo", "box", model={"hidden_sizes": hidden_sizes}, **ALGORITHMS["ppo"])
    rollout = make_rollout(learner, 5, seed=1)
    obs, actions = rollout.obs.reshape(-1, 3), rollout.actions.reshape(-1, 2)
    with torch.no_grad():
        log_probs, _, _ = learner.model.evaluate_actions(torch.from_numpy(obs), torch.from_numpy(actions))
    np.testing.assert_allclose(rollout.extras["log_probs"].reshape(-1), log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learn_features", [False, True])
def test_only_the_actor_of_sac_lets_the_noise_train_its_features(learn_features: bool) -> None:
    torch.manual_seed(0)
    model: Any
    if learn_features:
        model = MLPSquashedGaussianActorCritic(SMALL_SPACES["box"], model_config(), state_noise=-1.0)
        network = model.policy_network
    else:
        model = MLPActorCritic(SMALL_SPACES["box"], model_config(), state_noise=-1.0)
        network = model.actor
    log_std = network(torch.randn(4, 3))[:, 2:]
    log_std.sum().backward()
    trained = network[0].weight.grad is not None and bool(network[0].weight.grad.any())
    assert trained == learn_features
    assert network[-1].log_std.grad.abs().min() > 0


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_an_update_moves_the_noise_of_the_policy(algo: str) -> None:
    learner = make_learner(algo, "box", **ALGORITHMS[algo])
    before = learner.model.actor[-1].log_std.detach().clone()
    metrics = learner.update(make_rollout(learner, 6, seed=1))
    assert not torch.equal(learner.model.actor[-1].log_std, before)
    assert all(bool(torch.isfinite(value).all()) for value in metrics.values())
    assert "log_std" not in dict(learner.model.named_parameters()), "one deviation, that of the state"


def test_actions_that_are_not_box_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"state_dependent_noise: needs Box actions, .* Discrete") as refusal:
        make_learner("ppo", "discrete", **ALGORITHMS["ppo"])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("algo", ["td3", "dqn", "trpo", "recurrent_ppo"])
def test_algorithms_without_it_refuse_the_setting_and_the_name_of_sb3(algo: str) -> None:
    for name in ("state_dependent_noise", "use_sde"):
        with pytest.raises(ConfigError, match=name):
            load_config({"algo": algo, "env_id": "Pendulum-v1", "algo_kwargs": {name: True}}, {})
    with pytest.raises(ConfigError, match="state_dependent_noise"):
        load_config({"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {"use_sde": True}}, {})
