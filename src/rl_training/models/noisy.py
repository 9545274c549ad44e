"""Noisy linear layers (arXiv:1706.10295): weights with learned noise, which comes in as an argument.

A layer draws no numbers itself. So the same call with the same noise gives the same result, a compiled step sees the
noise as an input, and acting without noise uses the means alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.config.train_config import ModelConfig
from rl_training.models.layers.numpy_layers import array_of
from rl_training.models.mlp import mlp, numpy_forward


class NoisyLinear(nn.Module):
    """y = (W + S * f(e_out) f(e_in)^T) x + b + s * f(e_out),  f(e) = sgn(e) sqrt|e|: factorized noise, eq. 10 and 11.

    `mean` holds W and b. S and s start at sigma_0 / sqrt(inputs).
    """

    def __init__(self, mean: nn.Linear, initial_sigma: float):
        super().__init__()
        self.mean = mean
        self.inputs, self.outputs = mean.in_features, mean.out_features
        start = initial_sigma / math.sqrt(self.inputs)
        self.weight_sigma = nn.Parameter(torch.full_like(mean.weight, start))
        self.bias_sigma = nn.Parameter(torch.full_like(mean.bias, start))

    @property
    def noise_size(self) -> int:
        return self.inputs + self.outputs

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise` of standard normal numbers is [inputs + outputs], or [B, ...] for each row its own; None is none."""
        outputs: Tensor = self.mean(x)
        if noise is None:
            return outputs
        scaled = noise.sign() * noise.abs().sqrt()
        before, after = scaled.split([self.inputs, self.outputs], -1)
        # The product of the outer product with x, without the matrix itself.
        spread: Tensor = nn.functional.linear(x * before, self.weight_sigma) + self.bias_sigma
        noisy: Tensor = outputs + after * spread
        return noisy


class NoisyMLP(nn.Module):
    """An `mlp` in which every linear layer is noisy."""

    def __init__(self, input_size: int, output_size: int, config: ModelConfig, *, initial_sigma: float):
        super().__init__()
        self.layers = nn.ModuleList(
            NoisyLinear(layer, initial_sigma) if isinstance(layer, nn.Linear) else layer
            for layer in mlp(input_size, output_size, config)
        )
        self.noise_size = sum(layer.noise_size for layer in self.layers if isinstance(layer, NoisyLinear))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise` has the numbers of all layers, [noise_size] or [B, noise_size]."""
        used = 0
        for layer in self.layers:
            if not isinstance(layer, NoisyLinear):
                x = layer(x)
                continue
            part = None if noise is None else noise[..., used : used + layer.noise_size]
            x, used = layer(x, part), used + layer.noise_size
        return x

    def numpy_forward(self) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """`forward` for acting, with noise [B, noise_size] or None: NumPy in and out, on views of the parameters."""
        steps = [_numpy_layer(layer) for layer in self.layers]
        sizes = [layer.noise_size if isinstance(layer, NoisyLinear) else 0 for layer in self.layers]
        stops = np.cumsum(sizes)

        def forward(x: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
            scaled = None if noise is None else np.sign(noise) * np.sqrt(np.abs(noise))
            for step, size, stop in zip(steps, sizes, stops, strict=True):
                x = step(x, None if scaled is None else scaled[:, stop - size : stop])
            return x

        return forward


def _numpy_layer(layer: nn.Module) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """One layer in NumPy. A noisy one takes f of its part of the noise."""
    if not isinstance(layer, NoisyLinear):
        plain = numpy_forward(nn.Sequential(layer))
        return lambda x, _: plain(x)
    arrays = (layer.mean.weight, layer.mean.bias, layer.weight_sigma, layer.bias_sigma)
    weight, bias, weight_sigma, bias_sigma = (array_of(array) for array in arrays)
    weight, weight_sigma, inputs = weight.T, weight_sigma.T, layer.inputs

    def forward(x: np.ndarray, scaled: np.ndarray | None) -> np.ndarray:
        outputs: np.ndarray = x.dot(weight)
        outputs += bias
        if scaled is not None:
            spread = (x * scaled[:, :inputs]).dot(weight_sigma)
            spread += bias_sigma
            outputs += scaled[:, inputs:] * spread
        return outputs

    return forward
