"""The place of an actor among several that explore differently (arXiv:1803.00933): Ape-X and R2D2."""

from __future__ import annotations

from rl_training.algorithms.common.exploration import exploration_ladder
from rl_training.config.algorithms.common.exploration_ladder import LadderConfig
from rl_training.config.train_config import TrainConfig


def ladder_of(config: TrainConfig) -> list[float] | None:
    """The rungs of the exploration ladder, one per actor; None if all actors explore alike."""
    settings, actors = config.algo_kwargs, config.runtime.actors
    assert isinstance(settings, LadderConfig)
    if actors == 1 or settings.exploration_ladder is False:
        return None
    return exploration_ladder(actors, settings.ladder_base, settings.ladder_exponent)


class EpsilonLadder:
    """The probability of a random action of one actor, for the whole run; None without a ladder."""

    def __init__(self, config: TrainConfig):
        self._rungs = ladder_of(config)
        # The learner is no actor: what it says of exploration is the mean.
        self.epsilon = None if self._rungs is None else sum(self._rungs) / len(self._rungs)

    def take_place(self, index: int) -> None:
        """Explore from here on like actor `index` of the run."""
        if self._rungs is not None:
            self.epsilon = self._rungs[index]
