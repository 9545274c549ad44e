"""Making environments: one for evaluation and play, many at once for training.

Vector envs made here reset in the same step (`AutoresetMode.SAME_STEP`), except for an env's own vector class, which
chooses its mode. An env that cannot be made raises `EnvError` with the way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

import gymnasium as gym
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.envs.backends import BackendRefused, known_autoreset_mode, make_vector
from rl_training.envs.batched_classic import BatchedVector
from rl_training.envs.env_request import EnvRequest, name_of
from rl_training.envs.env_specs import find_spec, shown_id
from rl_training.envs.env_types import BackendName, EnvMaker, EnvSource
from rl_training.envs.envpool_vector import EnvPoolVector
from rl_training.envs.processes.async_vector import DEFAULT_TIMEOUT, AsyncVector
from rl_training.errors import ConfigError, EnvError, install_hint, raise_interrupts
from rl_training.text import describe_error, one_line

_EXTRAS = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco", "ale_py": "atari"}


def make_env(
    env_id: str | EnvMaker, env_kwargs: Mapping[str, Any] | None = None, *, render_mode: str | None = None
) -> gym.Env[Any, Any]:
    """One env from an id, `module:EnvId` or a callable. Only a registered env has a time limit.

    Images stay as they are unless `env_kwargs` has the key `atari` or `image` (see config/pixels.py).

    >>> env = make_env("CartPole-v1", {"max_episode_steps": 10})
    >>> env.observation_space.shape, env.spec.max_episode_steps
    ((4,), 10)
    >>> env.close()
    """
    target = find_spec(env_id) if isinstance(env_id, str) else env_id
    kwargs = dict(env_kwargs or {})
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    with _errors_of(env_id, target, kwargs):
        return EnvRequest.parse(target, kwargs).make_one()


def make_vector_env(
    env: EnvSource,
    num_envs: int,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    backend: BackendName = "auto",
    timeout: float = DEFAULT_TIMEOUT,
) -> VectorEnv[Any, Any, Any]:
    """Many envs as one; a VectorEnv is returned as it is.

    The backends are described in backends.py: `native` is the env's own vector class (or ale-py's, for Atari),
    `batched` ours for classic control, `sync` steps one env after the other in this process, `async` has a supervised
    process per env, `envpool` has EnvPool's C++ threads. `auto` is the fastest one that is sure to work.
    """
    if backend not in get_args(BackendName):
        raise ConfigError(f"vector_backend {backend!r} is unknown: use one of {', '.join(get_args(BackendName))}")
    if num_envs < 1:
        raise ConfigError(f"num_envs is {num_envs}: it must be at least 1")
    kwargs = dict(env_kwargs or {})
    if isinstance(env, VectorEnv):
        return _accept(env, num_envs, kwargs, backend)
    target = find_spec(env) if isinstance(env, str) else env
    with _errors_of(env, target, kwargs):
        request = EnvRequest.parse(target, kwargs, num_envs, backend, timeout)
        try:
            return make_vector(request)
        except BackendRefused as refused:
            raise EnvError(f"env {_quoted(env)} cannot use vector_backend {backend!r}: {refused}") from None


def autoreset_mode(vector_env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """SAME_STEP or NEXT_STEP, as the env's metadata says. In any other mode the end of an episode is not visible."""
    mode = known_autoreset_mode(vector_env)
    if mode is not None:
        return mode
    entry = (vector_env.metadata or {}).get("autoreset_mode", "missing")
    raise EnvError(
        f"vector env {type(vector_env.unwrapped).__name__} has autoreset mode {entry!s}: make it reset "
        "itself and set metadata['autoreset_mode'] to AutoresetMode.SAME_STEP or AutoresetMode.NEXT_STEP"
    )


def backend_of(envs: VectorEnv[Any, Any, Any]) -> BackendName:
    """The backend that made these envs, for a run that asked for `auto`. A foreign vector class is `native`."""
    names: dict[type[Any], BackendName] = {
        BatchedVector: "batched",
        gym.vector.SyncVectorEnv: "sync",
        AsyncVector: "async",
        EnvPoolVector: "envpool",
    }
    return next((name for kind, name in names.items() if isinstance(envs.unwrapped, kind)), "native")


def _accept(
    env: VectorEnv[Any, Any, Any], num_envs: int, kwargs: dict[str, Any], backend: str
) -> VectorEnv[Any, Any, Any]:
    if env.num_envs != num_envs:
        raise EnvError(f"num_envs is {num_envs} but the given vector env has {env.num_envs} envs: make the two equal")
    if kwargs or backend != "auto":
        raise EnvError("the given vector env is already made: leave env_kwargs empty and vector_backend at 'auto'")
    return env


@contextmanager
def _errors_of(env: Any, target: Any, kwargs: dict[str, Any]) -> Iterator[None]:
    """Any exception while this env is made becomes one line with the way out."""
    try:
        yield
    except (EnvError, ConfigError):
        raise
    except BaseException as error:
        raise_interrupts(error)
        missing = isinstance(error, (gym.error.DependencyNotInstalled, ImportError))
        extra = _extra_of(target, kwargs) if missing else None
        way_out = f": {install_hint(extra)}" if extra else f" (env_kwargs: {one_line(kwargs, 200)})" if kwargs else ""
        raise EnvError(f"env {_quoted(env)} cannot be made: {describe_error(error, 500)}{way_out}") from error


def _quoted(env: Any) -> str:
    return shown_id(env) if isinstance(env, str) else name_of(env)


def _extra_of(target: Any, kwargs: dict[str, Any]) -> str | None:
    """The extra of this package that installs what the env needs."""
    entry_point = str(getattr(target, "entry_point", ""))
    family = next((extra for prefix, extra in _EXTRAS.items() if entry_point.startswith(prefix)), None)
    drawn = kwargs.get("render_mode") is not None and entry_point.startswith("gymnasium.envs.")
    return family or ("video" if drawn else None)
