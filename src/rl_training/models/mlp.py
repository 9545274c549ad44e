"""Multi-layer perceptrons, and their forward pass in NumPy for acting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from rl_training.config.train_config import ModelConfig
from rl_training.models.encoders import Encoder, VectorEncoder
from rl_training.models.normalizer import ObservationNormalizer

NumpyForward = Callable[[np.ndarray], np.ndarray]
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def mlp(
    input_size: int, output_size: int, config: ModelConfig, *, output_gain: float = 1.0, tanh_output: bool = False
) -> nn.Sequential:
    """Hidden layers of `config.hidden_sizes` and a linear output layer with the orthogonal gain `output_gain`."""
    sizes: Sequence[int] = (input_size, *config.hidden_sizes, output_size)
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        is_output = index == len(sizes) - 2
        linear = nn.Linear(fan_in, fan_out)
        if config.orthogonal_init:
            nn.init.orthogonal_(linear.weight, output_gain if is_output else math.sqrt(2))
            nn.init.zeros_(linear.bias)
        layers.append(linear)
        if not is_output:
            layers.append(ACTIVATIONS[config.activation]())
    if tanh_output:
        layers.append(nn.Tanh())
    return nn.Sequential(*layers)


def numpy_forward(network: nn.Sequential) -> NumpyForward:
    """The forward pass of an `mlp` in NumPy. For a few rows it takes about a tenth of the time of a module call.

    The arrays are views of the parameters, so they follow every optimizer step. They become stale only if a parameter
    gets new storage, which happens at construction (`flatten_parameters`), before the first action.
    """
    steps: list[tuple[np.ndarray, np.ndarray] | Callable[..., np.ndarray]] = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            steps.append((layer.weight.detach().numpy().T, layer.bias.detach().numpy()))
        elif isinstance(layer, nn.Tanh):
            steps.append(np.tanh)
        elif isinstance(layer, nn.ReLU):
            steps.append(_relu)
        else:
            raise TypeError(f"{type(layer).__name__} has no NumPy forward pass")

    def forward(x: np.ndarray) -> np.ndarray:
        for step in steps:
            if isinstance(step, tuple):
                # Not `@`: it calls the same BLAS function, but takes twice as long for a few rows.
                x = x.dot(step[0])
                x += step[1]
            else:
                x = step(x, x)
        return x

    return forward


def _relu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.maximum(x, 0, out=out)
    return out


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
    second network `beside` on the same features are appended as further columns.
    """
    device = next(network.parameters()).device
    on_vectors = encoder is None or isinstance(encoder, VectorEncoder)
    if device.type == "cpu" and beside is None and on_vectors:
        forward = numpy_forward(network)
    else:
        forward = _torch_forward(network, encoder, beside, device)
    if normalizer is None:
        return ActingForward(forward)
    return ActingForward(lambda obs: forward(normalizer.numpy(obs)))


def _torch_forward(
    network: nn.Sequential, encoder: Encoder | None, beside: nn.Sequential | None, device: torch.device
) -> NumpyForward:
    @torch.no_grad()
    def forward(x: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(x).to(device)
        features = rows if encoder is None else encoder(rows)
        outputs = network(features)
        return (outputs if beside is None else torch.cat([outputs, beside(features)], 1)).cpu().numpy()

    return forward
