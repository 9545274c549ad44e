"""The settings of the actor-learner runtime: how many actors step the environments, where, and how far they may lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rl_training.config.algorithm_table import ALGORITHMS, get_algorithm
from rl_training.config.base import PositiveInteger, StrictModel
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig

MOST_ACTORS = 1024
DEFAULT_MAX_LAG = 20


class RuntimeConfig(StrictModel):
    """Who steps the environments of a run. By default the process that learns does, and nothing is started."""

    backend: Literal["auto", "inline", "process"] = Field(
        "auto", description="Where actors run; auto is process, or inline (in the learner's process) for one actor."
    )
    actors: int = Field(1, ge=1, le=MOST_ACTORS, description="Number of actors that share the environments.")
    mode: Literal["auto", "lockstep", "pipelined", "async"] = Field(
        "auto", description="How actors and learner take turns; auto is the best mode that keeps runs reproducible."
    )
    max_lag: PositiveInteger | None = Field(
        None, description="Updates by which a rollout may be older than the weights that learn it (async); null is 20."
    )
    actor_timeout: float = Field(
        60.0,
        gt=0,
        le=1_000_000,
        description="Seconds that an actor process may take per rollout before it is replaced.",
    )

    @property
    def uses_fleet(self) -> bool:
        """Whether a resolved config starts actors. Without them the loop steps the environments itself."""
        return self.actors > 1 or self.backend != "inline" or self.mode != "lockstep"

    def resolved(self, algo: str) -> RuntimeConfig:
        """The same settings with a value for every `auto`."""
        changes: dict[str, Any] = {}
        backend = self.backend
        if backend == "auto":
            backend = changes["backend"] = "process" if self.actors > 1 else "inline"
        if self.mode == "auto":
            alone = self.actors == 1 and backend == "inline"
            stale = "pipelined" in get_algorithm(algo).modes
            changes["mode"] = "pipelined" if stale and not alone else "lockstep"
        if self.mode == "async" and self.max_lag is None:
            changes["max_lag"] = DEFAULT_MAX_LAG
        return self.model_copy(update=changes)

    def check(self, train: TrainConfig) -> None:
        """Refuse values that conflict with the rest of the run's settings."""
        if train.num_envs % self.actors:
            raise ConfigError(
                f"runtime.actors: {self.actors} actors cannot share num_envs={train.num_envs} equally; use a multiple, "
                f"such as num_envs={-(-train.num_envs // self.actors) * self.actors}",
                key="runtime.actors",
            )
        if self.max_lag is not None and self.mode != "async":
            raise ConfigError(
                "runtime.max_lag: only runtime.mode async has a lag to bound (lockstep has none, pipelined has 1); "
                "leave it out or use mode async",
                key="runtime.max_lag",
            )
        if self.mode == "auto" or self.mode in get_algorithm(train.algo).modes:
            return
        others = " or ".join(row.name for row in ALGORITHMS.values() if self.mode in row.modes)
        reason = (
            "has no correction for stale rollouts"
            if get_algorithm(train.algo).loop == "on-policy"
            else "fills its replay buffer in lockstep"
        )
        raise ConfigError(
            f"runtime.mode: {train.algo} {reason} and cannot use {self.mode}; use mode lockstep, or {others}",
            key="runtime.mode",
        )
