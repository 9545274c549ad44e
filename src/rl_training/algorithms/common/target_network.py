"""Target networks: slow copies of an online network that stabilize its targets."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.common.counters import Counter
from rl_training.models.encoders.normalizer import ObservationNormalizer

Network = TypeVar("Network", bound=nn.Module)


class TargetNetwork(Generic[Network]):
    """A frozen copy of an online network: `follow` moves it softly, `copy_every` replaces it now and then.

    With `copied`, `copies` counts the full copies. The learner saves it beside the network.
    """

    def __init__(self, online: Network, *, copied: bool = False):
        self.module: Network = copy.deepcopy(online).requires_grad_(False)
        self.copies = Counter() if copied else None
        self._parameters: list[Tensor] = list(self.module.parameters())
        self._online_parameters: list[Tensor] = list(online.parameters())
        # Observation statistics describe the data and are not learned: both networks use the same ones.
        for name, child in online.named_children():
            if isinstance(child, ObservationNormalizer):
                setattr(self.module, name, child)

    @torch.no_grad()
    def follow(self, tau: float = 1.0) -> None:
        """target <- tau * online + (1 - tau) * target"""
        torch._foreach_lerp_(self._parameters, self._online_parameters, tau)

    def copy_every(self, env_steps: int, every: int) -> None:
        """Copy the online network if `env_steps` has entered another period of `every` steps since the last copy.

        The period may also be an earlier one: a new run that starts from a saved agent counts from 0 again.
        """
        assert self.copies is not None, "only a target with `copied` counts its copies"
        due = env_steps // every
        if due != self.copies.value:
            self.copies.value = due
            self.follow()

    def state_dict(self) -> dict[str, Any]:
        return self.module.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state)
