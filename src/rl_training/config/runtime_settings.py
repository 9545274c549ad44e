"""The settings of the actor-learner runtime: how many actors step the environments, where, and how far they may lag."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rl_training.config.algorithm_table import ALGORITHMS, get_algorithm, get_config_class
from rl_training.config.base import PositiveInteger, StrictModel
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig

MOST_ACTORS = 1024
DEFAULT_MAX_LAG = 20
ADDRESS = re.compile(r"auto|[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", re.ASCII)


class RuntimeConfig(StrictModel):
    """Who steps the environments of a run. By default the process that learns does, and nothing is started."""

    backend: Literal["auto", "inline", "process", "ray"] = Field(
        "auto",
        description="Where actors run; auto is process, or inline (in the learner's process) for one actor; ray is a "
        "Ray cluster.",
    )
    actors: int = Field(1, ge=1, le=MOST_ACTORS, description="Number of actors that share the environments.")
    mode: Literal["auto", "lockstep", "pipelined", "async"] = Field(
        "auto", description="How actors and learner take turns; auto is the best mode that keeps runs reproducible."
    )
    max_lag: PositiveInteger | None = Field(
        None,
        description="Updates by which a rollout may be older than the weights that learn it (async); null is 20, or "
        "twice the actors for a3c if that is more.",
    )
    actor_timeout: float = Field(
        60.0,
        gt=0,
        le=1_000_000,
        description="Seconds that an actor process may take per rollout before it is replaced.",
    )
    address: str | None = Field(
        None,
        description="The Ray cluster to join (ray): host:port of its head, or auto for the one that this machine is "
        "part of; null starts one on this machine for the run.",
    )
    cpus_per_actor: float | None = Field(
        None, gt=0, le=1024, description="CPUs that an actor takes of the cluster at `address` (ray); null is 1."
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
        if self.mode == "async" and self.max_lag is None and get_algorithm(algo).loop == "on-policy":
            # A push of one of K actors is K - 1 updates old at best.
            pushes = get_config_class(algo).pushes_gradients
            changes["max_lag"] = max(DEFAULT_MAX_LAG, 2 * self.actors) if pushes else DEFAULT_MAX_LAG
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
        self._check_ray()
        if self.max_lag is not None and get_algorithm(train.algo).loop == "replay":
            raise ConfigError(
                f"runtime.max_lag: {train.algo} learns from replay, where rows of any age are used; leave it out",
                key="runtime.max_lag",
            )
        if self.mode == "auto" or self.mode in get_algorithm(train.algo).modes:
            return
        mine = get_algorithm(train.algo)
        rows = [row for row in ALGORITHMS.values() if self.mode in row.modes]
        others = [row.name for row in rows if (row.loop == "replay") == (mine.loop == "replay")]
        reason = (
            "has no correction for stale rollouts"
            if mine.loop.startswith("on-policy")
            else f"fills its replay buffer in {' or '.join(mine.modes)}"
        )
        way_out = " or ".join(mine.modes) + (f", or {' or '.join(others)}" if others else "")
        raise ConfigError(
            f"runtime.mode: {train.algo} {reason} and cannot use {self.mode}; use mode {way_out}",
            key="runtime.mode",
        )

    def _check_ray(self) -> None:
        """Refuse settings of a Ray cluster that cannot be used, or would do nothing."""
        if self.address is not None and self.backend != "ray":
            raise ConfigError(
                f"runtime.address: only runtime.backend ray joins a cluster, this run has {self.backend}; set it to "
                "null or use backend ray",
                key="runtime.address",
            )
        if self.address is not None and ADDRESS.fullmatch(self.address) is None:
            way_out = "auto or host:port of the head node"
            if "://" in self.address:
                way_out += "; the learner runs on a machine of the cluster, not behind a Ray client"
            raise ConfigError(f"runtime.address: {self.address!r} is not valid, use {way_out}", key="runtime.address")
        if self.cpus_per_actor is not None and self.address is None:
            raise ConfigError(
                "runtime.cpus_per_actor: only a cluster that is joined shares out its CPUs; set it to null, or set "
                "runtime.backend ray and runtime.address",
                key="runtime.cpus_per_actor",
            )
