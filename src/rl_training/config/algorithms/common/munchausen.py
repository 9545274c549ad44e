"""Settings of Munchausen Q-learning, an option of DQN and IQN."""

from __future__ import annotations

from pydantic import Field

from rl_training.config.base import StrictModel
from rl_training.errors import ConfigError


class MunchausenConfig(StrictModel):
    """A mixin: list it first among the bases. Its fields follow those of the other bases."""

    munchausen: bool = Field(
        False, description="Add the scaled log-policy to the reward, and bootstrap from soft values (Munchausen)."
    )
    munchausen_scale: float = Field(0.9, ge=0, le=1, description="Weight of the log-policy in the reward.")
    munchausen_temperature: float = Field(
        0.03, gt=0, description="Temperature of the softmax policy; it scales the log-policy too."
    )
    munchausen_floor: float = Field(
        -1.0, le=0, description="Least value of temperature times log-policy, before its weight."
    )

    def without_effect(self) -> frozenset[str]:
        others: frozenset[str] = super().without_effect()  # type: ignore[misc]
        if self.munchausen:
            return others
        return others | {"munchausen_scale", "munchausen_temperature", "munchausen_floor"}

    def check_munchausen(self, *, double: bool, n_step: int) -> None:
        """Refuse options that have no meaning with soft values, or that would lose a term of the target."""
        if not self.munchausen:
            return
        if double:
            raise ConfigError(
                "algo_kwargs.double: munchausen averages over all next actions and selects none; set double=false",
                key="algo_kwargs.double",
            )
        if n_step > 1:
            raise ConfigError(
                f"algo_kwargs.n_step: munchausen adds the log-policy of one step, but n_step is {n_step}; set n_step=1",
                key="algo_kwargs.n_step",
            )
