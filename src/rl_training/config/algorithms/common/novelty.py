"""Settings of the novelty bonus (random network distillation): PPO, recurrent PPO, A2C, TRPO, ACKTR and PPG."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.base import LayerSize, NonNegativeSchedule, StrictModel, constant

_ALONE = frozenset({"novelty_gamma", "novelty_learning_rate", "novelty_epochs", "novelty_size"})


class NoveltyConfig(StrictModel):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    novelty_coef: float = Field(
        0.0, ge=0, description="Weight of the advantage of novel observations (RND); 0 disables the bonus."
    )
    novelty_gamma: float = Field(
        0.99, gt=0, lt=1, description="Discount factor of novelty, whose return continues in the next episode."
    )
    novelty_learning_rate: NonNegativeSchedule = Field(
        constant(1e-4), description="Learning rate of the networks that measure novelty and predict its return."
    )
    novelty_epochs: int = Field(4, ge=1, description="Number of passes of these networks over each rollout.")
    novelty_size: LayerSize = Field(64, description="Outputs of the random network that the other one imitates.")

    def without_effect(self) -> frozenset[str]:
        others: frozenset[str] = super().without_effect()  # type: ignore[misc]
        return others if self.novelty_coef else others | _ALONE
