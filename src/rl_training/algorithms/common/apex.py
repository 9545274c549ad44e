"""What Ape-X learners have in common: priorities by their own networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from torch import Tensor, nn

from rl_training.algorithms.common.actor_ladder import ladder_of
from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.replay_learner import NoisyActorCritic
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.common.actor_critic import NoisyActorConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import Spaces

NoisyApexConfig = TypeVar("NoisyApexConfig", bound=NoisyActorConfig)
Model = TypeVar("Model", bound=nn.Module)


class ApexActor(ABC):
    """A learner that may be one of several actors, which say how surprising their rows are."""

    @abstractmethod
    def priorities(self, batch: Transitions) -> Tensor:
        """|n-step error| of each row by this learner's own networks, without its targets. Nothing changes.   [B]"""


class NoisyApexActor(NoisyActorCritic[NoisyApexConfig, Model], ApexActor):
    """One whose actors add noise to the actions of a deterministic actor, each with its own scale."""

    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams):
        super().__init__(spaces, config, streams)
        self._ladder = ladder_of(config)

    def take_place(self, index: int) -> None:
        if self._ladder is not None:
            self.noise.sigma = self.config.exploration_noise * self._ladder[index] / self._ladder[0]

    def acting_tensors(self) -> list[Tensor]:
        """All networks: priorities need the critics too."""
        return Learner.acting_tensors(self)
