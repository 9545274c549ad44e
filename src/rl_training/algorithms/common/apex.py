"""What Ape-X learners have in common: priorities by their own networks."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from rl_training.data.transitions import Transitions


class ApexActor(ABC):
    """A learner that may be one of several actors, which say how surprising their rows are."""

    @abstractmethod
    def priorities(self, batch: Transitions) -> Tensor:
        """|n-step error| of each row by this learner's own networks, without its targets. Nothing changes.   [B]"""
