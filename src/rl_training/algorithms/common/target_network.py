"""Target networks: slow copies of an online network that stabilize its targets."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rl_training.models.normalizer import ObservationNormalizer

Network = TypeVar("Network", bound=nn.Module)


class TargetNetwork(Generic[Network]):
    """A frozen copy that follows its online network: target <- tau * online + (1 - tau) * target."""

    def __init__(self, online: Network):
        self.module: Network = copy.deepcopy(online).requires_grad_(False)
        self._parameters: list[Tensor] = list(self.module.parameters())
        self._online_parameters: list[Tensor] = list(online.parameters())
        # Observation statistics describe the data and are not learned: both networks look through the same ones.
        for name, child in online.named_children():
            if isinstance(child, ObservationNormalizer):
                setattr(self.module, name, child)

    @torch.no_grad()
    def follow(self, tau: float = 1.0) -> None:
        torch._foreach_lerp_(self._parameters, self._online_parameters, tau)

    def state_dict(self) -> dict[str, Any]:
        return self.module.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state)
