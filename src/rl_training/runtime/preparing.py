"""What a run needs before its first step: resolved settings, envs, a learner and its loop."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.learner import resolve_device
from rl_training.algorithms.common.streams import Streams
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvSource
from rl_training.envs.factory import backend_of, make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.agent import CALLABLE_PREFIX
from rl_training.runtime.compile_setting import resolve_compile
from rl_training.runtime.loops import Loop
from rl_training.runtime.threads import resolve_threads


def resolve_auto(config: TrainConfig, spaces: Spaces, envs: VectorEnv | None = None) -> TrainConfig:
    """Replace `auto` by what it means here, so that the run records it and a resumed run does the same.

    `envs` are those that were made for the run; without them, as with a vector env that was given, `vector_backend`
    stays as it is.
    """
    device = str(resolve_device(config.device))
    settings: dict[str, Any] = {
        "device": device,
        "threads": resolve_threads(config, spaces.observation_shape),
        "compile": resolve_compile(config, device),
    }
    if envs is not None and config.vector_backend == "auto":
        settings["vector_backend"] = backend_of(envs)
    return load_config(config, settings)


def default_run_name(config: TrainConfig) -> str:
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", config.env_id.removeprefix(CALLABLE_PREFIX)).strip("-.")
    return f"{config.algo}-{env}-seed{config.seed}"[:64]


@contextlib.contextmanager
def training_envs(config: TrainConfig, env: EnvSource | None) -> Iterator[VectorEnv]:
    """The run's vector env. One that the caller made stays open: it is not ours to close."""
    if env is None and config.env_id.startswith(CALLABLE_PREFIX):
        raise EnvError(
            f"the env of this run was the Python object {config.env_id.removeprefix(CALLABLE_PREFIX)}: "
            f"load the run in Python and pass env="
        )
    envs = make_vector_env(
        config.env_id if env is None else env,
        config.num_envs,
        env_kwargs={} if isinstance(env, VectorEnv) else config.env_kwargs,
        backend="auto" if isinstance(env, VectorEnv) else config.vector_backend,
        timeout=config.env_timeout,
    )
    try:
        yield envs
    finally:
        if envs is not env:
            # Workers that are gone already must not replace the outcome of the run.
            with contextlib.suppress(OSError, EOFError):
                envs.close()


def check_eval_env(config: TrainConfig, env: EnvSource | None, spaces: Spaces) -> None:
    """Make the env of evaluation once, if it is another than that of training: not hours later, to no avail."""
    if not config.eval_env_kwargs or isinstance(env, VectorEnv):
        return
    try:
        made = make_env(config.env_id if env is None else env, config.evaluation_kwargs)
    except EnvError as problem:
        raise EnvError(f"eval_env_kwargs: {problem}") from None
    with contextlib.closing(made):
        if Spaces(made.observation_space, made.action_space) != spaces:
            raise EnvError(f"eval_env_kwargs: {config.env_id} has other spaces with them; leave out what changes them")


def build_loop(config: TrainConfig, envs: VectorEnv, spaces: Spaces) -> Loop:
    """The algorithm's learner on its loop, at step 0."""
    spec, streams = get_spec(config.algo), Streams(config.seed)
    loop: Loop = spec.loop(envs, spaces, spec.learner(spaces, config, streams), config, streams)
    return loop
