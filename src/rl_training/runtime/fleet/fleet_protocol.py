"""The interface of a fleet: what the learner asks of its actors, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import BackendName
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.tickets import Ticket


@dataclass(frozen=True)
class Greeting:
    """What an actor says of its envs once they are made."""

    spaces: Spaces
    vector_backend: BackendName


class FleetLost(EnvError):
    """What the fleet runs on is gone, and the learner is not: the run is saved and ends."""


class Fleet(Protocol):
    """The actors of a run, wherever they are. Actor k has the envs k * n to (k + 1) * n - 1 of the run."""

    notes: list[str]  # a line for each time that a process behind the actors was replaced; it grows

    def start(self) -> Greeting:
        """Start all actors and wait until their envs are made. An env that cannot be made raises its error."""

    def equip(self, config: TrainConfig, state: Sequence[np.ndarray]) -> None:
        """Give all actors the resolved config, from which they build their learners. `state` is to be like theirs."""

    def publish(self, state: Sequence[np.ndarray]) -> None:
        """These weights go with every ticket from here on, as they are when it is granted."""

    def grant(self, ticket: Ticket) -> None:
        """Hand a ticket and the published weights to its actor, which has no other."""

    def poll(self, seconds: float) -> list[Delivery | ActorFailure]:
        """What has arrived, after at most `seconds`; empty if nothing has. FleetLost if nothing can arrive again."""

    def replace(self, actor: int) -> None:
        """Start an actor anew. This does not wait: its first delivery comes when its envs are made.

        FleetLost if it can be started nowhere.
        """

    def alive(self) -> int:
        """The number of actors that are known to run."""

    def close(self) -> None:
        """End everything that was started."""
