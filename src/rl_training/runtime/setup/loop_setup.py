"""Builds the loop of a run: environments, spaces, `auto` settings and the learner, refused before any work is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.envs.factory import backend_of
from rl_training.envs.spaces import Spaces
from rl_training.runtime.agent import no_larger_than
from rl_training.runtime.auto_settings import explain_auto, resolve_auto
from rl_training.runtime.callbacks.callback_list import check_hook_settings
from rl_training.runtime.fleet.fleet_setup import build_fleet_loop, open_fleet
from rl_training.runtime.loops import Loop
from rl_training.runtime.setup.resolved_defaults import resolve_defaults
from rl_training.runtime.setup.run_envs import (
    check_budget,
    check_eval_env,
    require_stored_spaces,
    spaces_of,
    training_envs,
)
from rl_training.runtime.spec import get_spec
from rl_training.runtime.stop_signals import StopSignals
from rl_training.storage.checkpoints import Checkpoint


@contextlib.contextmanager
def open_loop(
    config: TrainConfig,
    env: EnvSource | None,
    eval_env: str | EnvMaker | None,
    signals: StopSignals,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Loop]:
    """The loop of a run on its environments, at step 0. Everything that can be refused is refused here."""
    config = resolve_defaults(config, env)
    config = config.model_copy(update={"runtime": config.runtime.resolved(config.algo)})
    if checkpoint is None:
        check_budget(config, env)
    if config.runtime.uses_fleet:
        with _fleet_loop(config, env, eval_env, signals, checkpoint) as loop:
            yield loop
        return
    with training_envs(config, env) as envs:
        spaces = spaces_of(envs, config)
        _check_run(config, env, eval_env, spaces, checkpoint)
        made = None if envs is env else backend_of(envs)
        choices = explain_auto(config, spaces, made)
        config = resolve_auto(config, spaces, made, num_envs=envs.num_envs)
        with contextlib.nullcontext() if checkpoint is None else no_larger_than(checkpoint):
            # A rollout that takes too long after a stop signal is dropped.
            loop = build_loop(config, envs, spaces, signals.overdue)
        loop.choices = choices
        yield loop


@contextlib.contextmanager
def _fleet_loop(
    config: TrainConfig,
    env: EnvSource | None,
    eval_env: str | EnvMaker | None,
    signals: StopSignals,
    checkpoint: Checkpoint | None,
) -> Iterator[Loop]:
    """`open_loop` for a run whose environments are stepped by actors."""
    with open_fleet(config, env, signals.overdue) as fleet:
        greeting = fleet.start()
        spaces = greeting.spaces
        _check_run(config, env, eval_env, spaces, checkpoint)
        choices = explain_auto(config, spaces, greeting.vector_backend)
        config = resolve_auto(config, spaces, greeting.vector_backend)
        learners = 1 + (config.runtime.actors if config.runtime.backend == "inline" else 0)
        with contextlib.nullcontext() if checkpoint is None else no_larger_than(checkpoint, learners):
            loop = build_fleet_loop(config, fleet, spaces, signals.overdue)
        loop.choices = choices
        yield loop


def _check_run(
    config: TrainConfig,
    env: EnvSource | None,
    eval_env: str | EnvMaker | None,
    spaces: Spaces,
    checkpoint: Checkpoint | None,
) -> None:
    if checkpoint is None:
        get_spec(config.algo).check_spaces(spaces, config.env_id)
    else:
        require_stored_spaces(spaces, config.env_id, checkpoint)
    if eval_env is None:
        check_eval_env(config, env, spaces)
    check_hook_settings(config, env, eval_env)


def build_loop(
    config: TrainConfig, envs: VectorEnv, spaces: Spaces, overdue: Callable[[], bool] = lambda: False
) -> Loop:
    """The learner of the algorithm on its loop, at step 0."""
    spec, streams = get_spec(config.algo), Streams(config.seed)
    return spec.loop(envs, spaces, spec.learner(spaces, config, streams), config, streams, overdue)
