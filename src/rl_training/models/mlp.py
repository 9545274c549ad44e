"""Multi-layer perceptrons, and their forward pass in NumPy for acting."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from rl_training.config.train_config import ModelConfig
from rl_training.models.encoders.encoder import Encoder, VectorEncoder
from rl_training.models.encoders.normalizer import ObservationNormalizer
from rl_training.models.layers.blocks import ACTIVATIONS, BatchNorm, Dropout, SimbaBlock, run
from rl_training.models.layers.initialization import initialize_layer
from rl_training.models.layers.numpy_layers import NumpyForward, array_of, numpy_activation, numpy_layer
from rl_training.models.layers.precision import HiddenLinear


def mlp(
    input_size: int,
    output_size: int,
    config: ModelConfig,
    *,
    output_gain: float = 1.0,
    tanh_output: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Hidden layers of `config.hidden_sizes` and a linear output layer with the initial gain `output_gain`.

    With `dropout`, every hidden layer has it, before the layer norm.
    """
    if config.blocks == "simba":
        layers = _simba_layers(input_size, config)
    else:
        layers = _plain_layers(input_size, config, dropout)
    output = nn.Linear((input_size, *config.hidden_sizes)[-1], output_size)
    initialize_layer(output, config.initialization, output_gain)
    return nn.Sequential(*layers, output, *([nn.Tanh()] if tanh_output else []))


def batch_norm_mlp(input_size: int, output_size: int, config: ModelConfig, *, renorm_after: int) -> nn.Sequential:
    """As `mlp`, with batch norm before every linear layer, the first and the last too (CrossQ, arXiv:1902.05605)."""
    layers: list[nn.Module] = []
    sizes = (input_size, *config.hidden_sizes, output_size)
    for number, (fan_in, fan_out) in enumerate(pairwise(sizes), 1):
        is_output = number == len(sizes) - 1
        linear = nn.Linear(fan_in, fan_out)
        initialize_layer(linear, config.initialization, 1.0 if is_output else math.sqrt(2))
        activation = [] if is_output else [ACTIVATIONS[config.activation]()]
        layers += [BatchNorm(fan_in, renorm_after=renorm_after), linear, *activation]
    return nn.Sequential(*layers)


def _plain_layers(input_size: int, config: ModelConfig, dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((input_size, *config.hidden_sizes)):
        linear = HiddenLinear(fan_in, fan_out) if layers else nn.Linear(fan_in, fan_out)
        initialize_layer(linear, config.initialization)
        drop = [Dropout(dropout)] if dropout else []
        norm = [nn.LayerNorm(fan_out)] if config.layer_norm else []
        layers += [linear, *drop, *norm, ACTIVATIONS[config.activation]()]
    return layers


def _simba_layers(input_size: int, config: ModelConfig) -> list[nn.Module]:
    """A linear layer, a residual block per hidden size, and layer norm (arXiv:2410.09754, figure 4)."""
    (width,) = set(config.hidden_sizes)
    first = nn.Linear(input_size, width)
    initialize_layer(first, config.initialization, 1.0)
    blocks = [SimbaBlock(width, config.activation) for _ in config.hidden_sizes]
    for block in blocks:
        for layer in block.branch:
            if isinstance(layer, nn.Linear):
                initialize_layer(layer, config.initialization)
    return [first, *blocks, nn.LayerNorm(width)]


def numpy_forward(network: nn.Sequential) -> NumpyForward:
    """The forward pass of a network in NumPy. For a few rows it takes about a tenth of the time of a module call.

    The arrays are views of the parameters, so they follow every optimizer step. They become stale only if a parameter
    gets new storage, which happens at construction (`flatten_parameters`), before the first action.
    """
    steps: list[tuple[np.ndarray, np.ndarray] | NumpyForward] = []
    own = False  # whether the array belongs to this pass and may be written to
    for layer in network:
        activation = numpy_activation(layer)
        if isinstance(layer, nn.Linear):
            steps.append((array_of(layer.weight).T, array_of(layer.bias)))
        elif activation is not None:
            steps.append(_in_place(activation) if own else _into_new(activation))
        else:
            steps.append(numpy_layer(layer, numpy_forward))
        own = isinstance(layer, (nn.Linear, nn.LayerNorm)) or activation is not None

    def forward(x: np.ndarray) -> np.ndarray:
        for step in steps:
            if isinstance(step, tuple):
                # Not `@`: it calls the same BLAS function, but takes twice as long for a few rows.
                x = x.dot(step[0])
                x += step[1]
            else:
                x = step(x)
        return x

    return forward


def _in_place(activation: Callable[..., np.ndarray]) -> NumpyForward:
    return lambda x: activation(x, x)


def _into_new(activation: Callable[..., np.ndarray]) -> NumpyForward:
    return lambda x: activation(x, np.empty_like(x))


class ActingForward:
    """A forward pass on the weights of one model. Its copy and its pickle are None.

    A copy of a model must build a new forward pass, otherwise it would act with the weights of the original.
    """

    def __init__(self, forward: NumpyForward):
        self._forward = forward

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self._forward(x)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def acting_forward(
    network: nn.Sequential,
    encoder: Encoder | None = None,
    normalizer: ObservationNormalizer | None = None,
    *,
    beside: nn.Sequential | None = None,
) -> ActingForward:
    """The fastest way to run `normalizer`, `encoder` and `network` on a few rows, chosen once instead of per call.

    It uses NumPy for MLPs on the CPU, and torch without autograd for images and on other devices. The outputs of a
    second network `beside` on the same features are appended as further columns. It takes whole observations: with
    an `encoder`, the mask of the actions is dropped here.
    """
    modules: list[nn.Module] = [network] if encoder is None else [network, encoder]
    parameter = next((parameter for module in modules for parameter in module.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device  # a network may be without layers
    on_vectors = encoder is None or isinstance(encoder, VectorEncoder)
    if device.type == "cpu" and beside is None and on_vectors:
        forward = numpy_forward(network)
    else:
        forward = _torch_forward(network, encoder, beside, device)
    on_features = forward if normalizer is None else _chained(normalizer.numpy_forward(), forward)
    mask_size = getattr(encoder, "mask_size", 0)
    if mask_size:  # these columns are no features
        return ActingForward(lambda obs: on_features(obs[:, :-mask_size]))
    return ActingForward(on_features)


def _chained(first: NumpyForward, second: NumpyForward) -> NumpyForward:
    return lambda x: second(first(x))


def _torch_forward(
    network: nn.Sequential, encoder: Encoder | None, beside: nn.Sequential | None, device: torch.device
) -> NumpyForward:
    @torch.inference_mode()
    def forward(x: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(x).to(device)
        features = rows if encoder is None else encoder(rows)
        outputs = run(network, features)
        return (outputs if beside is None else torch.cat([outputs, run(beside, features)], 1)).cpu().numpy()

    return forward
