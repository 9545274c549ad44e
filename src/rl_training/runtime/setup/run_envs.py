"""The environments of a run: built from its config, or passed by the caller as Python objects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from rl_training.config.loading import backend_for_another_env
from rl_training.config.pixels import kept_for_another_env
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_closer import close_all, closed_after
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.envs.factory import make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import ConfigError, EnvError
from rl_training.storage.checkpoints import Checkpoint

CALLABLE_PREFIX = "callable:"  # of an env id that stands for a Python object


def env_name(env: EnvSource) -> str:
    """The env id that a config stores for `env`; of a Python object it is only a name."""
    if isinstance(env, str):
        return env
    named: Any = env.unwrapped if isinstance(env, VectorEnv) else env.func if isinstance(env, partial) else env
    return CALLABLE_PREFIX + str(getattr(named, "__name__", type(named).__name__))


def require_env(env_id: str) -> None:
    """EnvError if `env_id` stands for a Python object, which only the caller can pass again."""
    if env_id.startswith(CALLABLE_PREFIX):
        name = env_id.removeprefix(CALLABLE_PREFIX)
        raise EnvError(
            f"the environment is the Python object {name}, which its name cannot rebuild: use Python and pass env=, "
            "or eval_env= to evaluate an agent that trains on a VectorEnv"
        )


def with_env(config: TrainConfig, env: EnvSource | None) -> TrainConfig:
    """A stored config with `env` in place of its environment.

    Another env id does not know the keywords of the first one, and no other environment need have its vector class.
    """
    if env is None or env == config.env_id:
        return config
    changes: dict[str, Any] = {
        "env_id": env_name(env),
        "vector_backend": backend_for_another_env(config.vector_backend),
    }
    if isinstance(env, str):
        changes["env_kwargs"] = kept_for_another_env(config.env_kwargs)
        changes["eval_env_kwargs"] = kept_for_another_env(config.eval_env_kwargs)
    return config.model_copy(update=changes)


def spaces_of(env: EnvSource, config: TrainConfig) -> Spaces:
    """The spaces of `env`. If it is not an environment yet, one is built and closed again."""
    if isinstance(env, VectorEnv):
        return Spaces(env.single_observation_space, env.single_action_space, action_bound=config.action_bound)
    if isinstance(env, str):
        require_env(env)
    single_env = make_env(env, config.training_kwargs)
    with closed_after(single_env):
        return Spaces(single_env.observation_space, single_env.action_space, action_bound=config.action_bound)


def require_stored_spaces(spaces: Spaces, env_id: str, checkpoint: Checkpoint) -> None:
    """EnvError if an environment does not have the spaces that the checkpoint was saved with."""
    if spaces.to_json() != checkpoint.state.get("spaces"):
        raise EnvError(
            f"{env_id} has other spaces than the env of {checkpoint.path} had: pass one with the same spaces"
        )


def single_env_maker(
    config: TrainConfig, env: str | EnvMaker | None = None, *, render_mode: str | None = None
) -> Callable[[], gym.Env[Any, Any]]:
    """Makes single environments for evaluation and play: the run's own, or `env` with the same spaces."""
    source = config.env_id if env is None else env
    env_kwargs: dict[str, Any] = {}  # a callable has its own
    if isinstance(source, str):
        require_env(source)
        stored = config.evaluation_kwargs
        env_kwargs = stored if env is None else kept_for_another_env(stored)
    return partial(make_env, source, env_kwargs, render_mode=render_mode)


def eval_env_maker(
    config: TrainConfig, env: EnvSource | None, eval_env: str | EnvMaker | None, *, render_mode: str | None = None
) -> Callable[[], gym.Env[Any, Any]] | None:
    """Makes the evaluation environments of a run; None if there is only a vector environment, which has no copy."""
    if eval_env is not None or env is None:
        return single_env_maker(config, eval_env, render_mode=render_mode)
    if isinstance(env, VectorEnv):
        return None
    return partial(make_env, env, config.evaluation_kwargs, render_mode=render_mode)


@contextlib.contextmanager
def training_envs(config: TrainConfig, env: EnvSource | None) -> Iterator[VectorEnv]:
    """The vector environment of the run. One that the caller passes stays open: it belongs to the caller."""
    if env is None:
        require_env(config.env_id)
    if isinstance(env, VectorEnv) and config.wrappers:
        raise EnvError("wrappers: the given vector env is already made, wrap its envs when you make it")
    envs = make_vector_env(
        config.env_id if env is None else env,
        config.num_envs,
        env_kwargs={} if isinstance(env, VectorEnv) else config.training_kwargs,
        backend="auto" if isinstance(env, VectorEnv) else config.vector_backend,
        timeout=config.env_timeout,
    )
    try:
        yield envs
    finally:
        if envs is not env:
            close_all(envs.close)


def check_budget(config: TrainConfig, env: EnvSource | None) -> None:
    """ConfigError if the budget of a new run has not even one step for every environment: it would learn nothing."""
    num_envs = env.num_envs if isinstance(env, VectorEnv) else config.num_envs
    if num_envs > config.total_timesteps:
        raise ConfigError(
            f"total_timesteps: {config.total_timesteps} is less than one step for each of the {num_envs} environments; "
            f"use at least {num_envs} steps or fewer environments (num_envs)",
            key="total_timesteps",
        )


def check_eval_env(config: TrainConfig, env: EnvSource | None, spaces: Spaces) -> None:
    """Make the evaluation environment once if it has its own keywords, so that a bad one fails before training."""
    if not config.eval_env_kwargs or isinstance(env, VectorEnv):
        return
    try:
        eval_env = make_env(config.env_id if env is None else env, config.evaluation_kwargs)
    except EnvError as error:
        raise EnvError(f"eval_env_kwargs: {error}") from None
    with closed_after(eval_env):
        if Spaces(eval_env.observation_space, eval_env.action_space) != spaces:
            raise EnvError(
                f"eval_env_kwargs: {config.env_id} has other spaces with them; remove the keys that change the spaces"
            )
