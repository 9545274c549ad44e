"""Multi-layer perceptrons, and the same forward pass in NumPy for acting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from rl_training.config.train_config import ModelConfig
from rl_training.models.encoders import Encoder, VectorEncoder

NumpyForward = Callable[[np.ndarray], np.ndarray]
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def mlp(
    input_size: int, output_size: int, config: ModelConfig, *, output_gain: float = 1.0, tanh_output: bool = False
) -> nn.Sequential:
    """Linear layers of `config.hidden_sizes`, then one linear output whose orthogonal gain is `output_gain`."""
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
    """The forward pass of an `mlp` outside torch: about a tenth of the cost of a module call for a few rows.

    The arrays are views of the parameters, so an optimizer step needs no refresh. They go stale only when
    a parameter gets new storage, which happens at construction (`flatten_parameters`), before the first act.
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
            raise TypeError(f"no NumPy form of {type(layer).__name__}")

    def forward(x: np.ndarray) -> np.ndarray:
        for step in steps:
            if isinstance(step, tuple):
                # Not `@`: the same product of BLAS, but for a few rows twice the time to get there.
                x = x.dot(step[0])
                x += step[1]
            else:
                x = step(x, x)
        return x

    return forward


def _relu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0, out=out)


class ActingForward:
    """A forward pass that belongs to one model's weights: to copy or pickle it gives None.

    A copy of a model that has acted must make its own, or it would act by the original's weights.
    """

    def __init__(self, forward: NumpyForward):
        self._forward = forward

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self._forward(x)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def acting_forward(
    network: nn.Sequential, encoder: Encoder | None = None, *, beside: nn.Sequential | None = None
) -> ActingForward:
    """The way to run `network`, behind `encoder`, on a few rows. Decided once, not per call.

    NumPy for MLPs on the CPU; torch without autograd for images and elsewhere. There the outputs of a network `beside`
    can be had with those of the first, as further columns, for the price of its own layers.
    """
    device = next(network.parameters()).device
    if device.type == "cpu" and beside is None and (encoder is None or isinstance(encoder, VectorEncoder)):
        return ActingForward(numpy_forward(network))

    @torch.no_grad()
    def forward(x: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(x).to(device)
        features = rows if encoder is None else encoder(rows)
        outputs = network(features)
        return (outputs if beside is None else torch.cat([outputs, beside(features)], 1)).cpu().numpy()

    return ActingForward(forward)
