"""bfloat16 in updates: what is rounded and what is not, who chooses it, and that a run with it resumes exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import Spaces
from rl_training.models.cnn.impala_resnet import ImpalaResNet
from rl_training.models.cnn.nature import NatureCNN
from rl_training.models.layers import precision
from rl_training.models.layers.precision import EMULATED, HiddenLinear, ImageNetwork, bfloat16_pays, use_low_precision
from rl_training.runtime.auto_settings import resolve_precision
from rl_training.runtime.spec import get_spec
from rl_training.runtime.workflows import resume, train

SPACES = Spaces(gym.spaces.Box(-1, 1, (5,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32))
PIXELS = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
IMAGES, BOX_IMAGES = Spaces(PIXELS, gym.spaces.Discrete(3)), Spaces(PIXELS, SPACES.action_space)
# The relative error of one rounding to 8 bits.
ROUNDING = 2.0**-8


def config(algo: str = "sac", **changes: Any) -> TrainConfig:
    base = {"algo": algo, "env_id": "Pendulum-v1", "model": {"hidden_sizes": (128, 128), "activation": "relu"}}
    return load_config(base, changes)


def learner_of(config: TrainConfig, spaces: Spaces = SPACES) -> Learner[Any]:
    return get_spec(config.algo).learner(spaces, config, Streams(0))


def rounded(x: Tensor) -> Tensor:
    return x.detach().to(torch.bfloat16).double()


def test_a_low_precision_layer_multiplies_rounded_numbers_and_returns_float32() -> None:
    torch.manual_seed(0)
    layer = HiddenLinear(128, 160)
    layer.low_precision = True
    x = torch.randn(7, 128, requires_grad=True)
    outputs = layer(x)
    slow = rounded(x) @ rounded(layer.weight).T + rounded(layer.bias)
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs.double(), slow, rtol=ROUNDING, atol=1e-3)
    assert not torch.equal(outputs, nn.functional.linear(x, layer.weight, layer.bias))

    weights = torch.randn(7, 160)
    (outputs * weights).sum().backward()
    assert layer.weight.dtype == layer.weight.grad.dtype == x.grad.dtype == torch.float32
    for gradient, slow in (
        (layer.weight.grad, rounded(weights).T @ rounded(x)),
        (x.grad, rounded(weights) @ rounded(layer.weight)),
        (layer.bias.grad, rounded(weights).sum(0)),
    ):
        torch.testing.assert_close(gradient.double(), slow, rtol=2 * ROUNDING, atol=2e-2)


@pytest.mark.parametrize(
    "make", [partial(NatureCNN, (1, 36, 36), 16), partial(ImpalaResNet, (1, 16, 16), 16)], ids=["nature", "impala"]
)
def test_images_are_encoded_in_bfloat16_and_features_are_float32(make: Callable[[], ImageNetwork]) -> None:
    torch.manual_seed(0)  # rounding differs from network to network
    network = make()
    images = torch.randint(0, 256, (4, *network.input_shape), dtype=torch.uint8)
    plain = network(images)
    seen = []
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(lambda layer, args, output: seen.append(output.dtype))
    use_low_precision(network)
    features = network(images)
    assert features.dtype == torch.float32
    assert set(seen) == {torch.bfloat16}
    torch.testing.assert_close(features, plain, rtol=0.05, atol=0.02)
    assert not torch.equal(features, plain)
    with torch.inference_mode():
        assert torch.equal(network(images), plain)


def test_observations_and_outputs_keep_float32() -> None:
    model = learner_of(config(precision="bfloat16")).model
    low = [name for name, layer in model.named_modules() if getattr(layer, "low_precision", False)]
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    # Three networks (an actor and two critics) of three layers each: the one in the middle.
    assert len(low) == len(linear) // 3 == 3
    assert all(name.endswith(".2") for name in low)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_narrow_networks_compute_as_before() -> None:
    narrow = config(precision="bfloat16", model={"hidden_sizes": (128, 127)})
    assert not any(getattr(layer, "low_precision", False) for layer in learner_of(narrow).model.modules())


@pytest.mark.parametrize(
    ("algo", "spaces"),
    [("sac", SPACES), ("ppo", SPACES)]
    + [(algo, IMAGES) for algo in ("ppo", "dqn", "c51", "iqn", "rainbow", "recurrent_ppo", "r2d2", "acer")]
    + [(algo, BOX_IMAGES) for algo in ("sac", "td7")],
)
def test_acting_does_not_depend_on_the_precision(algo: str, spaces: Spaces) -> None:
    obs = np.stack([spaces.observation_space.sample() for _ in range(6)])
    plain, low = (learner_of(config(algo, precision=name), spaces) for name in ("float32", "bfloat16"))
    assert any(getattr(layer, "low_precision", False) for layer in low.model.modules())
    for explore in (False, True):
        first, second = plain.act(obs, explore=explore), low.act(obs, explore=explore)
        np.testing.assert_array_equal(first.actions, second.actions)
        for name, values in first.extras.items():
            np.testing.assert_array_equal(values, second.extras[name])


def test_auto_needs_the_instructions_and_a_measured_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {torch.float32: 2.0, torch.bfloat16: 1.0}
    monkeypatch.setattr(precision, "_product_seconds", seconds.__getitem__)
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    assert not bfloat16_pays()
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    assert bfloat16_pays()
    seconds[torch.bfloat16] = 1.9
    assert not bfloat16_pays()


def test_a_short_measurement_takes_a_fraction_of_a_second() -> None:
    assert 0 < precision._product_seconds(torch.float32) < 0.5


@pytest.mark.parametrize(
    ("changes", "shape", "device", "expected"),
    [
        ({}, (5,), "cpu", "bfloat16"),
        ({}, (5,), "cuda", "float32"),
        ({"model": {"hidden_sizes": (256,)}}, (5,), "cpu", "float32"),
        ({"model": {"hidden_sizes": (64,), "critic": {"hidden_sizes": (256, 256)}}}, (5,), "cpu", "bfloat16"),
        ({"model": {"hidden_sizes": ()}}, (1, 36, 36), "cpu", "bfloat16"),
        ({"model": {"hidden_sizes": (), "encoder": "mlp"}}, (1, 36, 36), "cpu", "float32"),
    ],
)
def test_auto_looks_for_layers_that_gain(
    changes: dict[str, Any], shape: tuple[int, ...], device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.runtime.auto_settings.bfloat16_pays", lambda: True)
    assert resolve_precision(config(precision="auto", **changes), shape, device) == expected
    assert resolve_precision(config(precision="float32", **changes), shape, device) == "float32"
    monkeypatch.setattr("rl_training.runtime.auto_settings.bfloat16_pays", lambda: False)
    assert resolve_precision(config(precision="auto", **changes), shape, device) == "float32"


def test_a_run_stores_what_auto_came_to_and_resumes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on a processor without bfloat16, where it says what that costs."""
    monkeypatch.setattr("rl_training.runtime.auto_settings.bfloat16_pays", lambda: True)
    settings = {"learning_starts": 10, "batch_size": 8, "buffer_size": 100}
    run = config(precision="auto", total_timesteps=20, output_dir=str(tmp_path), run_name="run", algo_kwargs=settings)
    train(run)
    stored = load_config(tmp_path / "run" / "config.yaml")
    assert stored.precision == "bfloat16"
    monkeypatch.setattr("rl_training.runtime.auto_settings.bfloat16_pays", lambda: False)
    monkeypatch.setattr("rl_training.runtime.session.has_bfloat16", lambda: False)
    capsys.readouterr()
    resume(tmp_path / "run", total_timesteps=30)
    assert EMULATED.split(";")[0] in " ".join(capsys.readouterr().err.split())
    assert load_config(tmp_path / "run" / "config.yaml").precision == "bfloat16"
