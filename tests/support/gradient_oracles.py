"""One gradient step of a learner with recorded weights: its gradients, while no weight moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces
from rl_training.models.layers.blocks import BatchNorm

SPACES = Spaces(gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Box(-1.0, 1.0, (2,), np.float32))


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def recorded_batch(rows: Mapping[str, Any], gamma: float) -> Transitions:
    return Transitions(
        obs=tensor(rows["obs"]),
        actions=tensor(rows["actions"]),
        rewards=tensor(rows["rewards"]),
        next_obs=tensor(rows["next_obs"]),
        discounts=gamma * (1 - tensor(rows["terminated"])),
    )


@torch.no_grad()
def set_layers(network: nn.Module, layers: Iterable[Any]) -> None:
    """Fill the linear layers of `network`, in their order."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for layer, (weight, bias) in zip(linear, layers, strict=True):
        layer.weight.copy_(tensor(weight))
        layer.bias.copy_(tensor(bias))


@torch.no_grad()
def set_norms(network: nn.Module, norms: Iterable[Any]) -> None:
    """Fill the batch norms of `network`, in their order."""
    own = [module for module in network.modules() if isinstance(module, BatchNorm)]
    for norm, values in zip(own, norms, strict=True):
        for part, value in zip((norm.weight, norm.bias, norm.running_mean, norm.running_variance), values, strict=True):
            part.copy_(tensor(value))


def assert_layers(network: nn.Module, layers: Iterable[Any]) -> None:
    """The linear layers of `network` are the recorded ones."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for layer, (weight, bias) in zip(linear, layers, strict=True):
        np.testing.assert_allclose(layer.weight.detach(), weight, atol=2e-5)
        np.testing.assert_allclose(layer.bias.detach(), bias, atol=2e-5)


def gradients_of_step(learner: Any, batch: Transitions, *inputs: Any) -> dict[str, Tensor]:
    """The flat gradients that actor and critics would step down, all at the same weights."""
    gradients: dict[str, Tensor] = {}
    for name in ("actor", "critic"):

        def keep(gradient: Tensor, name: str = name) -> Tensor:
            gradients[name] = gradient.clone()
            return gradient.norm()

        getattr(learner, f"{name}_optimizer").apply = keep
    learner.gradient_step(batch, *inputs)
    return gradients


def flat(parts: Iterable[Any]) -> np.ndarray:
    """Recorded gradients in one vector."""
    return np.concatenate([np.asarray(part, np.float32).reshape(-1) for part in parts])


def stacked_in_order(by_name: Mapping[str, Any], count: int) -> np.ndarray:
    """Gradients by name, each stacked over networks, as one vector: network by network."""
    return flat(by_name[name][network] for network in range(count) for name in by_name)
