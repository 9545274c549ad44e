"""Making environments: one for evaluation and play, many at once for training.

Vector envs made here reset in the same step (`AutoresetMode.SAME_STEP`), except for an env's own vector
class, which brings its mode with it. What cannot be made is an `EnvError` that names the way out.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, get_args

import gymnasium as gym
from gymnasium.envs import registration
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.config.pixels import PIXEL_KEYS, AtariOptions, ImageOptions, pixel_options
from rl_training.envs.async_vector import DEFAULT_TIMEOUT, SupervisedVectorEnv
from rl_training.envs.atari import AtariGames, atari_env, is_atari
from rl_training.envs.batched_classic import CLASSIC_VECTOR_ENVS, ClassicVectorEnv
from rl_training.envs.image_wrappers import image_env
from rl_training.envs.sync_vector import InProcessVectorEnv
from rl_training.envs.velocity_mask import MaskVelocity, MaskVelocityVector, split_mask_option
from rl_training.errors import ConfigError, EnvError

EnvMaker = Callable[..., gym.Env[Any, Any]]
Backend = Literal["auto", "native", "batched", "sync", "async"]

_EXTRAS = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco", "ale_py": "atari"}
_JAX_FAMILIES = ("gymnasium.envs.phys2d", "gymnasium.envs.tabular")


def make_env(
    env_id: str | EnvMaker, env_kwargs: Mapping[str, Any] | None = None, *, render_mode: str | None = None
) -> gym.Env[Any, Any]:
    """One env from an id, `module:EnvId` or a callable; only a registered env brings a time limit.

    Images are left as they are unless `env_kwargs` has the key `atari` or `image` (see config/pixels.py).

    >>> env = make_env("CartPole-v1", {"max_episode_steps": 10})
    >>> env.observation_space.shape, env.spec.max_episode_steps
    ((4,), 10)
    >>> env.close()
    """
    target = _find_spec(env_id) if isinstance(env_id, str) else env_id
    kwargs = dict(env_kwargs or {})
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    with _problems_of(env_id, target, kwargs):
        return _make_one(target, kwargs)


def make_vector_env(
    env: str | EnvMaker | VectorEnv[Any, Any, Any],
    num_envs: int,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    backend: Backend = "auto",
    timeout: float = DEFAULT_TIMEOUT,
) -> VectorEnv[Any, Any, Any]:
    """Many envs as one; a VectorEnv is taken as it is.

    Backend "native" is the env's own vector class, "batched" ours for classic control, "sync" steps one after
    the other in this process, "async" has a process per env, replaced when it fails or is silent for `timeout`
    seconds, and "auto" is the quickest that is sure to work: batched for several envs of classic control, native
    where there is such a class, else sync.
    """
    if backend not in get_args(Backend):
        raise ConfigError(f"vector_backend {backend!r} is unknown: use one of {', '.join(get_args(Backend))}")
    if num_envs < 1:
        raise ConfigError(f"num_envs is {num_envs}: it must be at least 1")
    kwargs = dict(env_kwargs or {})
    if isinstance(env, VectorEnv):
        return _accept(env, num_envs, kwargs, backend)
    target = _find_spec(env) if isinstance(env, str) else env
    with _problems_of(env, target, kwargs):
        options = pixel_options(kwargs)
        if isinstance(options, AtariOptions) and (backend in ("auto", "native") or options.episodic_life):
            return _make_atari_games(target, num_envs, options, kwargs, backend)
        if (
            backend == "auto"
            and num_envs > 1
            and not split_mask_option(kwargs)[0]
            and _batched_form(target) is not None
        ):
            return _make_batched(target, num_envs, kwargs)
        if backend == "auto" and num_envs > 1 and _has_native(target, num_envs, kwargs):
            native = _make_native(target, num_envs, kwargs)
            if _known_mode(native) in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
                return native
            native.close()
        if backend == "native":
            return _make_native(target, num_envs, kwargs)
        if backend == "batched":
            return _make_batched(target, num_envs, kwargs)
        makers = [partial(_make_one, target, kwargs)] * num_envs
        if backend == "async":
            return SupervisedVectorEnv(makers, timeout)
        return InProcessVectorEnv(makers)


def autoreset_mode(vector_env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """SAME_STEP or NEXT_STEP, as the env's metadata says; without either an episode's end cannot be told."""
    mode = _known_mode(vector_env)
    if mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        return mode
    found = (vector_env.metadata or {}).get("autoreset_mode", "missing")
    raise EnvError(
        f"vector env {type(vector_env.unwrapped).__name__} has autoreset mode {found!s}: make it reset by "
        "itself and set metadata['autoreset_mode'] to AutoresetMode.SAME_STEP or AutoresetMode.NEXT_STEP"
    )


def _known_mode(vector_env: VectorEnv[Any, Any, Any]) -> AutoresetMode | None:
    found = (vector_env.metadata or {}).get("autoreset_mode")
    return next((mode for mode in AutoresetMode if found in (mode, mode.value, mode.name)), None)


def _accept(
    env: VectorEnv[Any, Any, Any], num_envs: int, kwargs: dict[str, Any], backend: str
) -> VectorEnv[Any, Any, Any]:
    if env.num_envs != num_envs:
        raise EnvError(f"num_envs is {num_envs} but the given vector env holds {env.num_envs}: make the two agree")
    if kwargs or backend != "auto":
        raise EnvError("the given vector env is already made: leave env_kwargs empty and vector_backend at 'auto'")
    return env


def _make_one(target: registration.EnvSpec | EnvMaker, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    options, kwargs = pixel_options(kwargs), _without_pixel_options(kwargs)
    if isinstance(options, AtariOptions):
        return atari_env(_atari_spec(target), options, kwargs)
    kwargs, masked = split_mask_option(kwargs)
    env = _make_plain(target, kwargs)
    env = env if options is None else image_env(env, options)
    return MaskVelocity(env) if masked else env


def _make_plain(target: registration.EnvSpec | EnvMaker, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    if isinstance(target, registration.EnvSpec):
        # The checker would stay as one more layer on every step; observations are checked when encoded.
        return gym.make(target, disable_env_checker=True, **kwargs)
    if not callable(target):
        raise TypeError(f"give an env id or a callable that makes the env, not {type(target).__name__}")
    env = target(**kwargs)
    if not isinstance(env, gym.Env):
        raise TypeError(f"the callable returned {type(env).__name__}, not a gymnasium.Env")
    return env


def _make_atari_games(
    target: registration.EnvSpec | EnvMaker, num_envs: int, options: AtariOptions, kwargs: dict[str, Any], backend: str
) -> VectorEnv[Any, Any, Any]:
    if backend not in ("auto", "native"):
        raise TypeError(f"env_kwargs.atari.episodic_life needs vector_backend 'auto', not {backend!r}")
    if others := _without_pixel_options(kwargs):
        raise TypeError(f"with vector_backend 'auto' it takes no {', '.join(others)} beside atari, use 'sync'")
    return AtariGames(_atari_spec(target), num_envs, options)


def _atari_spec(target: registration.EnvSpec | EnvMaker) -> registration.EnvSpec:
    if isinstance(target, registration.EnvSpec) and is_atari(target):
        return target
    raise TypeError("env_kwargs.atari is for Atari ids such as ALE/Pong-v5, use env_kwargs.image")


def _without_pixel_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in PIXEL_KEYS}


def _make_native(
    target: registration.EnvSpec | EnvMaker, num_envs: int, kwargs: dict[str, Any]
) -> VectorEnv[Any, Any, Any]:
    if is_atari(target):
        raise TypeError("its own vector class clips the score away, set env_kwargs.atari=true")
    if isinstance(pixel_options(kwargs), ImageOptions):
        raise TypeError("env_kwargs.image needs vector_backend 'auto', 'sync' or 'async'")
    kwargs = _without_pixel_options(kwargs)
    if not isinstance(target, registration.EnvSpec) or target.vector_entry_point is None:
        raise TypeError("it has no vector class of its own, use vector_backend 'auto', 'sync' or 'async'")
    mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
    kwargs, masked = split_mask_option(kwargs)
    envs = gym.make_vec(target, num_envs=num_envs, vectorization_mode=mode, **kwargs)
    return MaskVelocityVector(envs) if masked else envs


def _make_batched(
    target: registration.EnvSpec | EnvMaker, num_envs: int, kwargs: dict[str, Any]
) -> VectorEnv[Any, Any, Any]:
    kind = _batched_form(target)
    if kind is None:
        raise TypeError(f"only {', '.join(CLASSIC_VECTOR_ENVS)} can be batched, use vector_backend 'auto'")
    kwargs, masked = split_mask_option(kwargs)
    if kwargs:
        raise TypeError("the batched form takes no env_kwargs but mask_velocity, use vector_backend 'auto'")
    return MaskVelocityVector(kind(num_envs)) if masked else kind(num_envs)


def _batched_form(target: registration.EnvSpec | EnvMaker) -> type[ClassicVectorEnv] | None:
    return CLASSIC_VECTOR_ENVS.get(target.id) if isinstance(target, registration.EnvSpec) else None


def backend_of(envs: VectorEnv[Any, Any, Any]) -> Backend:
    """What "auto" came to when `make_vector_env` made these; a vector class that is not ours is the env's own."""
    kinds: dict[type[Any], Backend] = {
        ClassicVectorEnv: "batched",
        gym.vector.SyncVectorEnv: "sync",
        SupervisedVectorEnv: "async",
    }
    return next((name for kind, name in kinds.items() if isinstance(envs.unwrapped, kind)), "native")


def backend_for_another_env(backend: Backend) -> Backend:
    """What is left of a run's backend when it goes on with another env, which may have no such vector class."""
    return "auto" if backend in ("native", "batched") else backend


def _has_native(target: registration.EnvSpec | EnvMaker, num_envs: int, kwargs: dict[str, Any]) -> bool:
    if not isinstance(target, registration.EnvSpec) or target.additional_wrappers or is_atari(target):
        return False
    if pixel_options(kwargs) is not None:
        return False
    kwargs = _without_pixel_options(kwargs)
    entry_point = target.vector_entry_point
    if entry_point is None or str(entry_point).startswith(_JAX_FAMILIES):
        return False
    arguments = {**target.kwargs, **split_mask_option(kwargs)[0], "num_envs": num_envs}
    if target.max_episode_steps is not None:
        arguments.setdefault("max_episode_steps", target.max_episode_steps)
    try:
        creator = registration.load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        inspect.signature(creator).bind(**arguments)
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
    return True


def _find_spec(env_id: str) -> registration.EnvSpec:
    """The registered spec, found here and not by gymnasium, which warns on the way about old versions."""
    module, _, name = env_id.rpartition(":")
    if module:
        _import_for(env_id, module)
    elif name.startswith("ALE/") or "NoFrameskip-v" in name:
        _register_atari(env_id)
    if name in gym.registry:
        return gym.registry[name]
    nearest = _nearest(name)
    if nearest is not None and nearest.rpartition("-v")[0] == name:
        return gym.registry[nearest]
    hint = f"did you mean {nearest!r}?" if nearest else "write 'module:EnvId' for an env of your own"
    raise EnvError(f"env {env_id!r} is not registered: {hint}")


def _import_for(env_id: str, module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as problem:
        raise EnvError(
            f"env {env_id!r}: importing {module!r} failed with {_one_line(problem)}: "
            "correct it, install it, or put its folder on PYTHONPATH"
        ) from problem


def _register_atari(env_id: str) -> None:
    try:
        gym.register_envs(importlib.import_module("ale_py"))
    except ImportError as problem:
        raise EnvError(f"env {env_id!r} needs Atari: {_install('atari')}") from problem


def _nearest(name: str) -> str | None:
    """The registered id most like this one, in its newest version."""
    newest: dict[str, registration.EnvSpec] = {}
    for spec in gym.registry.values():
        family = spec.id.rpartition("-v")[0] if spec.version is not None else spec.id
        if family not in newest or (spec.version or 0) > (newest[family].version or 0):
            newest[family] = spec
    head, _, version = name.rpartition("-v")
    wanted = head if version.isdigit() else name
    if wanted in newest:
        return newest[wanted].id
    lower = {family.lower(): spec.id for family, spec in newest.items()}
    close = difflib.get_close_matches(wanted.lower(), lower, n=1)
    return lower[close[0]] if close else None


@contextmanager
def _problems_of(env: Any, target: Any, kwargs: dict[str, Any]) -> Iterator[None]:
    """Whatever goes wrong while making this env becomes one line with the way out."""
    try:
        yield
    except (EnvError, ConfigError):
        raise
    except Exception as problem:
        name = repr(env) if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
        missing = isinstance(problem, (gym.error.DependencyNotInstalled, ImportError))
        extra = _extra_of(target, kwargs) if missing else None
        way_out = f": {_install(extra)}" if extra else f" (env_kwargs: {kwargs})" if kwargs else ""
        raise EnvError(f"env {name} cannot be made: {_one_line(problem)}{way_out}") from problem


def _extra_of(target: Any, kwargs: dict[str, Any]) -> str | None:
    entry_point = str(getattr(target, "entry_point", ""))
    family = next((extra for prefix, extra in _EXTRAS.items() if entry_point.startswith(prefix)), None)
    drawn = kwargs.get("render_mode") is not None and entry_point.startswith("gymnasium.envs.")
    return family or ("video" if drawn else None)


def _install(extra: str) -> str:
    return f'pip install "rl_training[{extra}]"'


def _one_line(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
