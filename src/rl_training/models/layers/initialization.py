"""First weights of a layer, by the name of the method."""

from __future__ import annotations

import math

from torch import Tensor, nn


def initialize_weight(weight: Tensor, method: str, gain: float = math.sqrt(2)) -> None:
    """Set a weight matrix or the filters of a convolution; `torch` leaves them as they are.

    The gain scales the standard deviation of the outputs. sqrt(2) keeps it the same through layers of ReLU units.
    """
    if method == "orthogonal":
        nn.init.orthogonal_(weight, gain)
    elif method == "xavier":
        nn.init.xavier_uniform_(weight, gain)
    elif method == "kaiming":
        fan_in = weight[0].numel()
        nn.init.normal_(weight, 0.0, gain / math.sqrt(fan_in))


def initialize_layer(layer: nn.Linear | nn.Conv2d, method: str, gain: float = math.sqrt(2)) -> None:
    """Set the weights, and zero biases; `torch` leaves both as they are."""
    initialize_weight(layer.weight, method, gain)
    if method != "torch" and layer.bias is not None:
        nn.init.zeros_(layer.bias)
