"""Dead units: hidden units that answer every row of a batch in the same way, and so pass on no gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.models.layers.blocks import HiddenLayers

MOST_ROWS = 64  # enough to tell a dead unit from a rare one, and cheap
SATURATED = 0.99  # a tanh unit beyond this passes on less than 2 % of a gradient


@torch.no_grad()
def dead_units(model: nn.Module, forward: Callable[[], Any]) -> Tensor | None:
    """The share of the hidden units of `model` that are dead on the rows of one call of `forward`.

    A ReLU unit is dead if it is 0 on every row, a tanh unit if it is beyond 0.99 in size on every row. A channel of an
    image counts as one unit. Nothing is drawn and nothing changes. None if `forward` calls no hidden layer.
    """
    seen: list[tuple[Tensor, int]] = []

    def look(layer: nn.Module, inputs: Any, outputs: Tensor) -> None:
        units = outputs.transpose(0, 1).flatten(1) if outputs.ndim == 4 else outputs.flatten(0, -2).T
        dead = units.eq(0) if isinstance(layer, nn.ReLU) else units.abs() > SATURATED
        seen.append((dead.all(1).sum(), len(units)))

    handles = [layer.register_forward_hook(look) for layer in _hidden_activations(model)]
    try:
        forward()
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        return None
    return torch.stack([dead for dead, _ in seen]).sum() / sum(size for _, size in seen)


def some_rows(rows: Tensor) -> Tensor:
    """At most about MOST_ROWS rows, spread over all of them: neighbors in a rollout are alike."""
    return rows[:: max(1, len(rows) // MOST_ROWS)]


def _hidden_activations(model: nn.Module) -> Iterator[nn.Module]:
    """The activations within a network. One at its end is an output, such as the action of a tanh actor."""
    for network in model.modules():
        if isinstance(network, (nn.Sequential, nn.ModuleList)):
            for layer in list(network)[: None if isinstance(network, HiddenLayers) else -1]:
                if isinstance(layer, (nn.ReLU, nn.Tanh)):
                    yield layer
