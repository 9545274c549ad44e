"""Starts the actors of a run and builds the loop that learns from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithms.common.apex import uses_shards
from rl_training.config.base import RolloutConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.replay_memory import check_rollout_fits
from rl_training.envs.env_types import EnvSource
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, install_hint
from rl_training.runtime.fleet.actor_collector import ActorCollector
from rl_training.runtime.fleet.apex_loops import ApexLoop, AsyncApexLoop
from rl_training.runtime.fleet.fleet_protocol import Fleet
from rl_training.runtime.fleet.inline import InlineFleet
from rl_training.runtime.fleet.processes import ProcessFleet
from rl_training.runtime.fleet.ray_setup import keep_private
from rl_training.runtime.fleet.stale_loops import AsyncGradientLoop, AsyncLoop, GradientLoop, PipelinedLoop
from rl_training.runtime.loops import Loop
from rl_training.runtime.spec import get_spec

STALE_LOOPS: dict[str, type[Loop]] = {"pipelined": PipelinedLoop, "async": AsyncLoop}
APEX_LOOPS: dict[str, type[Loop]] = {"lockstep": ApexLoop, "async": AsyncApexLoop}
GRADIENT_LOOPS: dict[str, type[Loop]] = {"lockstep": GradientLoop, "async": AsyncGradientLoop}
# A rollout is in the actor, in the shared memory and in the learner. With pipelined, a fast actor may have delivered
# the next one too. With async, two batches wait and one is learned.
COPIES = {"lockstep": 3, "pipelined": 4, "async": 6}


@contextlib.contextmanager
def open_fleet(
    config: TrainConfig, env: EnvSource | None, overdue: Callable[[], bool] = lambda: False
) -> Iterator[Fleet]:
    """The actors that a resolved config asks for, not started yet; they end with the context."""
    if isinstance(env, VectorEnv):
        raise ConfigError(
            "runtime.actors: a vector environment that is already made cannot be shared by actors; pass its id or a "
            "function that makes one environment, and set num_envs",
            key="runtime.actors",
        )
    fleet: Fleet
    if config.runtime.backend == "ray":
        fleet = _ray_fleet(config, env)
    elif config.runtime.backend == "inline":
        fleet = InlineFleet(config, env, overdue)
    else:
        fleet = ProcessFleet(config, env)
    try:
        yield fleet
    finally:
        fleet.close()


def _ray_fleet(config: TrainConfig, env: EnvSource | None) -> Fleet:
    keep_private(joins=config.runtime.address is not None)  # ray reads these settings when it is imported
    try:
        from rl_training.runtime.fleet.ray_actors import RayFleet
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        message = f"runtime.backend: ray is not installed: {install_hint('ray')}"
        raise ConfigError(message, key="runtime.backend") from None

    return RayFleet(config, env)


def build_fleet_loop(
    config: TrainConfig, fleet: Fleet, spaces: Spaces, overdue: Callable[[], bool] = lambda: False
) -> Loop:
    """The learner of the algorithm on its loop, with the actors of a fleet that has started."""
    _check_memory(config, spaces)
    spec, streams = get_spec(config.algo), Streams(config.seed)
    learner = spec.learner(spaces, config, streams)
    fleet.equip(config, learner.acting_state())
    collector = ActorCollector(fleet, spaces, learner, config, overdue)
    loops = GRADIENT_LOOPS if config.algo_kwargs.pushes_gradients else STALE_LOOPS
    if uses_shards(config):
        loops = APEX_LOOPS
    loop = loops.get(config.runtime.mode, spec.loop)
    return loop(collector, spaces, learner, config, streams, overdue)


def _check_memory(config: TrainConfig, spaces: Spaces) -> None:
    """ConfigError if the rollouts that exist at once do not fit into memory."""
    if isinstance(config.algo_kwargs, RolloutConfig):
        rows = config.algo_kwargs.num_steps * config.num_envs * COPIES[config.runtime.mode]
        check_rollout_fits(rows * spaces.row_bytes, rows)
