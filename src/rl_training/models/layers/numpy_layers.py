"""The forward pass of single layers in NumPy, for acting on a few rows without autograd.

The arrays are views of parameters and buffers, so they follow every change in place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.layers.blocks import AvgL1Norm, BatchNorm, Dropout, SimbaBlock
from rl_training.models.layers.exploration_head import StateNoiseHead

NumpyForward = Callable[[np.ndarray], np.ndarray]
# (input, array to write to, which may be the input) -> that array. A NumpyForward leaves its input as it is.
InPlace = Callable[[np.ndarray, np.ndarray], np.ndarray]


def numpy_activation(layer: nn.Module) -> InPlace | None:
    """An activation as a function of its input and of the array to write to, or None for another layer."""
    return _ACTIVATIONS.get(type(layer))


def numpy_layer(layer: nn.Module, forward_of: Callable[[nn.Sequential], NumpyForward]) -> NumpyForward:
    """A layer that is neither linear nor an activation. `forward_of` makes the pass of the networks inside it."""
    if isinstance(layer, nn.LayerNorm):
        return _layer_norm(layer)
    if isinstance(layer, BatchNorm):
        return _batch_norm(layer)
    if isinstance(layer, AvgL1Norm):
        least = np.float32(layer.epsilon)
        return lambda x: np.asarray(x / np.maximum(np.abs(x).mean(-1, keepdims=True), least))
    if isinstance(layer, Dropout):
        return lambda x: x
    if isinstance(layer, StateNoiseHead):
        return layer.numpy
    if isinstance(layer, SimbaBlock):
        branch = forward_of(layer.branch)
        return lambda x: np.asarray(x + branch(x))
    raise TypeError(f"{type(layer).__name__} has no NumPy forward pass")


def array_of(tensor: Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().numpy()


def _layer_norm(layer: nn.LayerNorm) -> NumpyForward:
    weight, bias, epsilon = array_of(layer.weight), array_of(layer.bias), np.float32(layer.eps)
    # Products with ones: for a few rows, `mean` takes several times as long as BLAS. Torch's one call is faster alone,
    # but slower between the steps of envs. Divided afterwards: 1/n is rounded, and equal inputs must have deviation 0.
    ones, size = np.ones((len(weight), 1), np.float32), np.float32(len(weight))

    def forward(x: np.ndarray) -> np.ndarray:
        mean = x.dot(ones)
        mean /= size
        centered: np.ndarray = x - mean
        deviation = np.square(centered).dot(ones)
        deviation /= size
        deviation += epsilon
        np.sqrt(deviation, deviation)
        centered *= weight / deviation
        centered += bias
        return centered

    return forward


def _batch_norm(layer: BatchNorm) -> NumpyForward:
    weight, bias = array_of(layer.weight), array_of(layer.bias)
    mean, variance = array_of(layer.running_mean), array_of(layer.running_variance)
    epsilon = np.float32(layer.epsilon)
    return lambda x: np.asarray((x - mean) * (weight / np.sqrt(variance + epsilon)) + bias)


def _tanh(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.tanh(x, out)
    return out


def _relu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.maximum(x, 0, out=out)
    return out


def _elu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    below = np.expm1(np.minimum(x, 0))
    np.maximum(x, 0, out=out)
    out += below
    return out


def _leaky_relu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.maximum(x, x * np.float32(0.01), out=out)
    return out


def _silu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    gate = np.tanh(x * np.float32(0.5))
    gate += 1
    gate *= np.float32(0.5)
    np.multiply(x, gate, out)
    return out


def _mish(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.multiply(x, np.tanh(np.logaddexp(np.float32(0), x)), out)
    return out


def _gelu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    # NumPy has no error function. The call takes 2 microseconds more than one of NumPy's own.
    out[...] = F.gelu(torch.from_numpy(x)).numpy()
    return out


_ACTIVATIONS: dict[type[nn.Module], InPlace] = {
    nn.Tanh: _tanh,
    nn.ReLU: _relu,
    nn.ELU: _elu,
    nn.GELU: _gelu,
    nn.SiLU: _silu,
    nn.LeakyReLU: _leaky_relu,
    nn.Mish: _mish,
}
