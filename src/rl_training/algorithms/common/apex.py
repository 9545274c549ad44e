"""What Ape-X learners have in common: a place among the actors, and priorities by their own networks."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from rl_training.algorithms.common.exploration import exploration_ladder
from rl_training.config.algorithms.apex import ApexConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions


class ApexActor(ABC):
    """A learner that may be one of several actors, which explore differently and say how surprising their rows are."""

    @abstractmethod
    def take_place(self, index: int) -> None:
        """Explore from here on like actor `index` of the run."""

    @abstractmethod
    def priorities(self, batch: Transitions) -> Tensor:
        """|n-step error| of each row by this learner's own networks, without its targets. Nothing changes.   [B]"""


def ladder_of(config: TrainConfig) -> list[float] | None:
    """The rungs of the exploration ladder, one per actor; None if all actors explore alike."""
    settings, actors = config.algo_kwargs, config.runtime.actors
    assert isinstance(settings, ApexConfig)
    if actors == 1 or settings.exploration_ladder is False:
        return None
    return exploration_ladder(actors, settings.ladder_base, settings.ladder_exponent)
