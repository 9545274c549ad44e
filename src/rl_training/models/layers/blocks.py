"""Parts of networks beside linear layers and convolutions.

Their forms in NumPy, for acting, are in `numpy_layers.py`. A network with a part that needs more than its input
(`BatchNorm`, `Dropout`) is called with `run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.layers.precision import HiddenLinear

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
}


class HiddenLayers(nn.Sequential):
    """Layers of a network that others follow: the activation at their end is a hidden one, not an output."""


def run(
    network: nn.Sequential, x: Tensor, *, batch_statistics: bool = False, masks: Sequence[Tensor] | None = None
) -> Tensor:
    """The outputs of `network` on rows `x`.

    With `batch_statistics` every `BatchNorm` normalizes by these rows and learns their statistics; otherwise it uses
    what it has learned. `masks` has a mask for every `Dropout`, in order; without masks nothing is dropped.
    """
    remaining = None if masks is None else iter(masks)
    for layer in network:
        if isinstance(layer, BatchNorm):
            x = layer(x, batch_statistics=batch_statistics)
        elif isinstance(layer, Dropout):
            x = layer(x, _next_mask(remaining))
        else:
            x = layer(x)
    if remaining is not None and next(remaining, None) is not None:
        raise ValueError("there are more masks than Dropout layers")
    return x


def _next_mask(masks: Iterator[Tensor] | None) -> Tensor | None:
    if masks is None:
        return None
    mask = next(masks, None)
    if mask is None:
        raise ValueError("there are fewer masks than Dropout layers")
    return mask


class BatchNorm(nn.Module):
    """Batch normalization (arXiv:1502.03167) over the rows [..., size], with its mode as an argument.

    A mode that is a state of the module, as in `nn.BatchNorm1d`, would be a second truth beside the algorithm. As
    there, rows are normalized by their biased variance, and the running variance is unbiased. The default momentum and
    epsilon are those of CrossQ (arXiv:1902.05605).

    With `renorm_after`, passes after so many are those of batch renormalization (arXiv:1702.03275): the values are what
    the running statistics say, within limits, and the gradients are still those of batch norm.
    """

    running_mean: Tensor
    running_variance: Tensor
    passes: Tensor
    MOST_SCALE, MOST_SHIFT = 3.0, 5.0  # the limits of the paper

    def __init__(self, size: int, *, momentum: float = 0.01, epsilon: float = 1e-3, renorm_after: int | None = None):
        super().__init__()
        self.momentum, self.epsilon, self.renorm_after = momentum, epsilon, renorm_after
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_variance", torch.ones(size))
        if renorm_after is not None:
            self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, *, batch_statistics: bool) -> Tensor:
        if not batch_statistics:
            scale = self.weight * (self.running_variance + self.epsilon).rsqrt()
            return (x - self.running_mean) * scale + self.bias
        rows = x.numel() // x.shape[-1]
        if rows < 2:
            raise ConfigError(
                "algo_kwargs.batch_size: batch norm needs at least 2 rows to normalize by, and this batch has "
                f"{rows}; use a larger batch_size",
                key="algo_kwargs.batch_size",
            )
        dimensions = tuple(range(x.ndim - 1))
        variance, mean = torch.var_mean(x, dimensions, correction=0)
        inverse = (variance + self.epsilon).rsqrt()
        if self.renorm_after is None:
            self._learn(mean, variance, rows)
            return (x - mean) * (self.weight * inverse) + self.bias
        scale, shift = self._renormalization(mean.detach(), inverse.detach())
        self._learn(mean, variance, rows)
        return ((x - mean) * (inverse * scale) + shift) * self.weight + self.bias

    @torch.no_grad()
    def _learn(self, mean: Tensor, variance: Tensor, rows: int) -> None:
        self.running_mean.lerp_(mean, self.momentum)
        self.running_variance.lerp_(variance * (rows / (rows - 1)), self.momentum)

    @torch.no_grad()
    def _renormalization(self, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """r and d of the paper: scale and shift from the statistics of the batch to the running ones."""
        running_inverse = (self.running_variance + self.epsilon).rsqrt()
        scale = (running_inverse / inverse).clamp(1 / self.MOST_SCALE, self.MOST_SCALE)
        shift = ((mean - self.running_mean) * running_inverse).clamp(-self.MOST_SHIFT, self.MOST_SHIFT)
        assert self.renorm_after is not None
        begun = self.passes >= self.renorm_after
        self.passes.add_(1)
        return torch.where(begun, scale, torch.ones_like(scale)), torch.where(begun, shift, torch.zeros_like(shift))


class Dropout(nn.Module):
    """Dropout (Srivastava et al., 2014) with a given mask; without a mask it is the identity.

    The mask comes from a random stream of the run, so that a compiled step sees an input and a resumed run repeats it.
    """

    def __init__(self, rate: float):
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"dropout: {rate} is not valid, expected number >= 0 and < 1")
        self.rate = rate

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x / (1 - rate) where the mask, zeros and ones in the shape of x, is one; else 0."""
        return x if mask is None else x * (mask * (1 / (1 - self.rate)))


class AvgL1Norm(nn.Module):
    """x / mean |x| over the features, as in TD7 (arXiv:2306.02451, eq. 5): the size of the features cannot collapse."""

    def __init__(self, epsilon: float = 1e-8):
        super().__init__()
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().mean(-1, keepdim=True).clamp(min=self.epsilon)


class SimbaBlock(nn.Module):
    """The residual block of SimBa (arXiv:2410.09754, figure 4): x + narrow(activation(wide(layer_norm(x)))).

    The hidden layer of the branch is four times as wide. SimBa's activation is ReLU.
    """

    def __init__(self, size: int, activation: str):
        super().__init__()
        self.branch = nn.Sequential(
            nn.LayerNorm(size), HiddenLinear(size, 4 * size), ACTIVATIONS[activation](), HiddenLinear(4 * size, size)
        )

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = x + self.branch(x)
        return outputs
