"""Image encoders: sizes, scaling, refused shapes, and the same choice of encoder in every algorithm."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from on_policy_helpers import SPACES, make_learner, model_config
from rl_training.algorithms.common.on_policy import policy_batch
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.algorithms.common.target_network import TargetNetwork
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.registry import ALGORITHMS, get_spec
from rl_training.models.cnn.impala_resnet import ImpalaResNet
from rl_training.models.cnn.nature import NatureCNN
from rl_training.models.encoders.encoder import FlatPixels, VectorEncoder, build_encoder
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_q import MLPQNetwork

DISCRETE = [name for name in ALGORITHMS if "discrete" in get_spec(name).actions]


def image_spaces(*shape: int, actions: int = 3) -> Spaces:
    return Spaces(gym.spaces.Box(0, 255, shape or (4, 84, 84), np.uint8), gym.spaces.Discrete(actions))


def some_images(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *(shape or (4, 84, 84))), dtype=np.uint8)


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaResNet])
@pytest.mark.parametrize("output_size", [64, 512])
def test_images_become_features_of_the_configured_size(kind: Any, output_size: int) -> None:
    network = kind((3, 40, 52), output_size)
    assert network.output_size == output_size
    features = network(torch.from_numpy(some_images(5, 3, 40, 52)))
    assert features.shape == (5, output_size)
    assert features.dtype == torch.float32


def test_nature_cnn_has_the_layers_of_the_paper() -> None:
    sizes = [tuple(p.shape) for p in NatureCNN().parameters() if p.ndim > 1]
    assert sizes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaResNet])
def test_pixels_are_scaled_exactly_once(kind: Any) -> None:
    network = kind((4, 44, 44), 32)
    seen: list[torch.Tensor] = []
    first = next(module for module in network.modules() if isinstance(module, torch.nn.Conv2d))
    first.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    images = torch.from_numpy(some_images(3, 4, 44, 44))
    features = network(images)
    torch.testing.assert_close(seen[0], images.double().div(255).float(), rtol=1e-6, atol=0)
    assert images.dtype == torch.uint8
    torch.testing.assert_close(network(images.float() / 255), features, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaResNet])
def test_layout_in_memory_does_not_change_the_result(kind: Any) -> None:
    network = kind((4, 44, 44), 32).double()
    images = torch.from_numpy(some_images(3, 4, 44, 44)).double() / 255
    flipped = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    torch.testing.assert_close(network(flipped), network(images))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84), "needs images (channels, height, width), but observations have the shape (84, 84)"),
        ((210, 160, 3), "looks like (height, width, channels); set env_kwargs.image.channel_first=true"),
        ((4, 20, 84), "at least 36 x 36 pixels, but these have 20 x 84; use model.encoder=impala or mlp, or set"),
        ((4, 7, 84), "at least 36 x 36 pixels, but these have 7 x 84; use model.encoder=mlp, or set"),
    ],
)
def test_image_shapes_that_do_not_fit_are_refused_with_a_way_out(shape: tuple[int, ...], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NatureCNN(shape)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(3, side, side) for side in range(3, 41)] + [(3, 7, 40), (3, 40, 9)], ids=str)
def test_a_refused_image_size_names_exactly_the_encoders_that_take_it(shape: tuple[int, ...]) -> None:
    def refusal(encoder: str, shape: tuple[int, ...] = shape) -> str | None:
        try:
            build_encoder(image_spaces(*shape), model_config(encoder=encoder, encoder_size=4))
        except ConfigError as error:
            return str(error)
        return None

    taken = {name for name in ("nature", "impala", "mlp") if refusal(name) is None}
    for encoder in ("auto", "nature", "impala"):
        message = refusal(encoder)
        if message is not None:
            advice = re.search(r"use model\.encoder=(.*), or set env_kwargs\.image\.resize=84$", message)
            assert advice is not None, message
            assert set(advice[1].split(" or ")) == taken
            assert refusal(encoder, (3, 84, 84)) is None
    assert refusal("auto") == refusal("nature") and "mlp" in taken


def test_a_batch_of_another_shape_is_refused_with_the_expected_shape() -> None:
    network = NatureCNN((4, 44, 44), 32)
    with pytest.raises(ValueError, match=r"expected images \(batch, 4, 44, 44\), got \(2, 44, 44, 4\)"):
        network(torch.zeros(2, 44, 44, 4, dtype=torch.uint8))


def test_auto_depends_on_the_observations() -> None:
    assert isinstance(build_encoder(SPACES["discrete"], model_config()), VectorEncoder)
    assert isinstance(build_encoder(image_spaces(), model_config()), NatureCNN)
    assert isinstance(build_encoder(image_spaces(), model_config(encoder="impala")), ImpalaResNet)
    flat = build_encoder(image_spaces(1, 5, 5), model_config(encoder="mlp"))
    assert isinstance(flat, FlatPixels)
    assert flat.output_size == 25
    assert build_encoder(image_spaces(), model_config(encoder_size=77)).output_size == 77


def test_an_image_encoder_for_vectors_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.encoder: nature needs images .* shape \(3,\); use auto"):
        build_encoder(SPACES["discrete"], model_config(encoder="nature"))


def test_whitened_images_show_what_changes_and_hide_what_does_not() -> None:
    model = MLPActorCritic(
        image_spaces(1, 36, 36), model_config(encoder_size=16, normalize_observations=True, observation_clip=5)
    )
    images = np.full((100, 1, 36, 36), 87, np.uint8)
    images[3, 0, 10, 20] = 236  # a ball in one of a hundred images
    torch.testing.assert_close(model.normalizer(torch.from_numpy(images[:4])), torch.from_numpy(images[:4]) / 255)
    model.normalizer.update(images)
    white = model.normalizer(torch.from_numpy(images[:4]))
    assert white[3, 0, 10, 20] == 5 and white[0, 0, 10, 20] == pytest.approx(-0.1, abs=1e-3)
    white[:, 0, 10, 20] = 0
    assert not white.any()


@pytest.mark.parametrize("share_encoder", [True, False])
def test_acting_and_values_use_the_same_whitened_images(share_encoder: bool) -> None:
    images = some_images(6, 2, 36, 36)
    config = model_config(encoder_size=16, normalize_observations=True)
    model = MLPActorCritic(image_spaces(2, 36, 36), config, share_encoder=share_encoder)
    model.normalizer.update(images)
    actions, extras = model.act(images, np.random.default_rng(0))
    log_probs, _, values = model.evaluate_actions(torch.from_numpy(images), torch.from_numpy(actions))
    np.testing.assert_allclose(extras["log_probs"], log_probs.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.value_numpy(images), values.detach().numpy(), rtol=1e-4, atol=1e-5)
    white = (images - images.mean(0)) / np.sqrt(images.var(0) + 1)
    critic = model.critic if model.critic_encodes else torch.nn.Sequential(model.encoder, model.critic)
    expected = critic(torch.from_numpy(white.astype(np.float32)))[:, 0]
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)


def test_vector_models_have_no_encoder_parameters() -> None:
    for model in (MLPQNetwork(SPACES["discrete"], model_config()), MLPActorCritic(SPACES["box"], model_config())):
        assert not [name for name in model.state_dict() if "encoder" in name]


def test_acting_on_images_follows_the_torch_model() -> None:
    images = some_images(3)
    model = MLPQNetwork(image_spaces(), model_config(hidden_sizes=()), dueling=True)
    optimizer = Optimizer(model.parameters())
    optimizer.set_learning_rate(1e-2)
    target = TargetNetwork(model)
    for _ in range(2):
        with torch.no_grad():
            expected = model.q_values(torch.from_numpy(images)).argmax(1).numpy()
        np.testing.assert_array_equal(model.greedy_actions(images), expected)
        optimizer.step(model.q_values(torch.from_numpy(images)).square().mean())
    before = target.module.greedy_actions(images)
    target.follow()
    with torch.no_grad():
        online = model.q_values(torch.from_numpy(images))
        torch.testing.assert_close(target.module.q_values(torch.from_numpy(images)), online)
    np.testing.assert_array_equal(target.module.greedy_actions(images), online.argmax(1).numpy())
    assert before.shape == (3,)


def test_policy_and_value_share_the_encoder_of_images() -> None:
    model = MLPActorCritic(image_spaces(), model_config())
    value_gradient = torch.autograd.grad(
        model.value(torch.from_numpy(some_images(2))).sum(), model.encoder.parameters(), allow_unused=True
    )
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in value_gradient)


def test_act_returns_values_if_policy_and_value_share_an_encoder() -> None:
    images = some_images(5, 2, 36, 36)
    model = MLPActorCritic(image_spaces(2, 36, 36), model_config(encoder_size=16))
    optimizer = Optimizer(model.parameters())
    optimizer.set_learning_rate(1e-2)
    for _ in range(2):  # before and after a gradient step: acting uses the current weights
        actions, extras = model.act(images, np.random.default_rng(0))
        log_probs, _, values = model.evaluate_actions(torch.from_numpy(images), torch.from_numpy(actions))
        np.testing.assert_allclose(extras["values"], values.detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(extras["log_probs"], log_probs.detach().numpy(), rtol=1e-4, atol=1e-5)
        optimizer.step(values.square().mean() - log_probs.mean())
    assert set(model.act(images)[1]) == set()
    apart = MLPActorCritic(image_spaces(2, 36, 36), model_config(encoder_size=16), share_encoder=False)
    assert set(apart.act(images, np.random.default_rng(0))[1]) == {"log_probs"}


def test_values_from_acting_make_the_same_batch_as_values_computed_from_the_rollout() -> None:
    steps, envs, shape = 6, 2, (2, 36, 36)
    model = MLPActorCritic(image_spaces(*shape), model_config(encoder_size=16))
    rng = np.random.default_rng(1)
    images = some_images((steps + 1) * envs + 1, *shape)
    obs = images[: steps * envs].reshape(steps, envs, *shape)
    acted = [model.act(rows, rng) for rows in obs]
    ends = np.zeros((2, steps, envs), bool)
    ends[0, 1, 0] = ends[1, 3, 1] = True
    rollout = Rollout(
        obs=obs,
        actions=np.stack([actions for actions, _ in acted]),
        rewards=rng.normal(size=(steps, envs)).astype(np.float32),
        terminated=ends[0],
        truncated=ends[1],
        valid=np.ones((steps, envs), bool),
        episode_starts=np.zeros((steps, envs), bool),
        last_obs=images[steps * envs : -1],
        final_steps=np.array([3]),
        final_envs=np.array([1]),
        final_obs=images[-1:],
        extras={name: np.stack([extras[name] for _, extras in acted]) for name in ("log_probs", "values")},
    )
    kept = policy_batch(rollout, model, gamma=0.9, gae_lambda=0.8)
    del rollout.extras["values"]
    again = policy_batch(rollout, model, gamma=0.9, gae_lambda=0.8)
    assert torch.equal(kept.obs, torch.from_numpy(images[: steps * envs]))
    for name in ("obs", "actions", "log_probs", "values", "advantages", "returns"):
        torch.testing.assert_close(getattr(kept, name), getattr(again, name), rtol=1e-4, atol=1e-5, msg=name)


def test_a_critic_with_a_separate_encoder_does_not_change_the_policy() -> None:
    model = MLPActorCritic(image_spaces(), model_config(), share_encoder=False)
    images = torch.from_numpy(some_images(2))
    policy = [p for name, p in model.named_parameters() if not name.startswith("critic.")]
    gradients = torch.autograd.grad(model.value(images).sum(), policy, allow_unused=True)
    assert gradients == (None,) * len(policy)
    _, _, value = model.evaluate_actions(images, torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(value, model.value(images))


@pytest.mark.parametrize("encoder", ["auto", "impala", "mlp"])
@pytest.mark.parametrize("algorithm", DISCRETE)
def test_every_discrete_algorithm_acts_on_images_by_the_same_choice(algorithm: str, encoder: str) -> None:
    learner = make_learner(algorithm, image_spaces(2, 36, 36), model={"encoder": encoder, "encoder_size": 16})
    kind = {"auto": NatureCNN, "impala": ImpalaResNet, "mlp": FlatPixels}[encoder]
    assert any(isinstance(module, kind) for module in learner.model.modules())
    images = some_images(4, 2, 36, 36)
    actions = learner.act(images, explore=False).actions
    assert actions.shape == (4,)
    np.testing.assert_array_equal(learner.act(images, explore=False).actions, actions)


CONTINUOUS = ["ddpg", "td3", "sac", "d4pg", "mpo", "tqc", "crossq", "redq", "naf", "td7", "droq"]


@pytest.mark.parametrize("algorithm", CONTINUOUS)
def test_continuous_algorithms_act_on_images(algorithm: str) -> None:
    box = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Box(-1.0, 1.0, (2,)))
    get_spec(algorithm).check_spaces(box, "SomeEnv-v0")
    learner = make_learner(algorithm, box, model={"encoder_size": 16})
    images = some_images(4, 2, 36, 36)
    actions = learner.act(images, explore=False).actions
    assert actions.shape == (4, 2) and actions.dtype == np.float32
    assert not np.allclose(actions, learner.act(255 - images, explore=False).actions)


@pytest.mark.parametrize("algorithm", CONTINUOUS[:8])
def test_the_critic_trains_the_shared_encoder_and_the_actor_does_not(algorithm: str) -> None:
    box = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Box(-1.0, 1.0, (2,)))
    learner = make_learner(algorithm, box, model={"encoder_size": 16})
    model, encoder = learner.model, list(learner.model.encoder.parameters())
    images = torch.from_numpy(some_images(4, 2, 36, 36))
    outputs = model.actor(images)
    output = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
    assert torch.autograd.grad(output.sum(), encoder, allow_unused=True) == (None,) * len(encoder)
    values = model.q_values(images, output.detach())
    assert all(gradient.abs().sum() > 0 for gradient in torch.autograd.grad(values.sum(), encoder))
    acting = make_learner(algorithm, box, model={"encoder_size": 16}, seed=1)
    acting.adopt(learner.acting_state())
    obs = some_images(3, 2, 36, 36)
    np.testing.assert_array_equal(acting.act(obs, explore=False).actions, learner.act(obs, explore=False).actions)
    trained = {id(parameter) for parameter in learner.critic_optimizer.parameters}
    assert {id(parameter) for parameter in encoder} <= trained
    assert trained.isdisjoint(id(parameter) for parameter in learner.actor_optimizer.parameters)
