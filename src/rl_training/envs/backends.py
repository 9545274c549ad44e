"""The vector backends: the words of the setting `vector_backend`, what each can run, and which one `auto` takes.

A backend says why it refuses a request, or makes its envs. To add one, write its class and put it into `candidates`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
from gymnasium.envs import registration
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.envs.action_mask import masked_vector
from rl_training.envs.atari import AtariVector, is_atari
from rl_training.envs.batched_classic import BATCHED_ENVS
from rl_training.envs.env_request import EnvRequest
from rl_training.envs.envpool_vector import EnvPoolVector, is_installed, known_ids
from rl_training.envs.processes.async_vector import AsyncVector
from rl_training.envs.sync_vector import SyncVector
from rl_training.envs.velocity_mask import MASK_KEY, MaskVelocityVector
from rl_training.errors import install_hint
from rl_training.text import describe_error

AnyVectorEnv = VectorEnv[Any, Any, Any]
_JAX_FAMILIES = ("gymnasium.envs.phys2d", "gymnasium.envs.tabular")


WRAPPERS_REFUSED = "wrappers wrap single envs, use vector_backend 'sync' or 'async'"


class BackendRefused(Exception):
    """A backend cannot run a request; the message is the reason."""


class Backend(ABC):
    """One way to step many envs as one."""

    @abstractmethod
    def refuses(self, request: EnvRequest) -> str | None:
        """Why this backend cannot run the request, with the way out; None if it can."""

    @abstractmethod
    def make(self, request: EnvRequest) -> AnyVectorEnv:
        """The vector env of a request that is not refused."""


class SyncBackend(Backend):
    """`sync`: envs are stepped one after the other in this process."""

    def refuses(self, request: EnvRequest) -> str | None:
        return _lives_refused(request)

    def make(self, request: EnvRequest) -> AnyVectorEnv:
        return SyncVector([request.make_one] * request.num_envs)


class AsyncBackend(Backend):
    """`async`: one process per env. A process that fails, or does not answer within the timeout, is replaced."""

    def refuses(self, request: EnvRequest) -> str | None:
        return _lives_refused(request)

    def make(self, request: EnvRequest) -> AnyVectorEnv:
        return AsyncVector([request.make_one] * request.num_envs, request.timeout)


class BatchedBackend(Backend):
    """`batched`: classic control, all envs in one array."""

    def refuses(self, request: EnvRequest) -> str | None:
        if request.spec is None or request.spec.id not in BATCHED_ENVS:
            return f"only {', '.join(BATCHED_ENVS)} can be batched, use vector_backend 'auto'"
        if request.wrappers:
            return WRAPPERS_REFUSED
        if set(request.env_kwargs) - {MASK_KEY}:
            return f"the batched form takes no env_kwargs except {MASK_KEY}, use vector_backend 'auto'"
        return None

    def make(self, request: EnvRequest) -> AnyVectorEnv:
        assert request.spec is not None
        return _masked(BATCHED_ENVS[request.spec.id](request.num_envs), request)


class NativeBackend(Backend):
    """`native`: the vector class that the env itself registered."""

    def refuses(self, request: EnvRequest) -> str | None:
        if is_atari(request.spec):
            return "the vector class of an Atari id clips rewards and loses the score, set env_kwargs.atari=true"
        if request.wrappers:
            return WRAPPERS_REFUSED
        if request.image is not None:
            return "env_kwargs.image needs vector_backend 'auto', 'sync' or 'async'"
        if request.observation_keys:
            return "env_kwargs.observation_keys needs vector_backend 'auto', 'sync' or 'async'"
        if request.spec is None or request.spec.vector_entry_point is None:
            return "it does not have its own vector class, use vector_backend 'auto', 'sync' or 'async'"
        return self._doubt(request, request.spec) if request.backend == "auto" else None

    def make(self, request: EnvRequest) -> AnyVectorEnv:
        assert request.spec is not None
        mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
        envs = gym.make_vec(request.spec, num_envs=request.num_envs, vectorization_mode=mode, **request.kwargs)
        if request.backend == "auto" and known_autoreset_mode(envs) is None:
            envs.close()
            raise BackendRefused("its vector class does not reset itself")
        return _masked(envs, request)

    def _doubt(self, request: EnvRequest, spec: registration.EnvSpec) -> str | None:
        """Why `auto` does not take a vector class that may work if it is asked for by name."""
        entry_point = spec.vector_entry_point
        assert entry_point is not None
        if spec.additional_wrappers:
            return "its vector class leaves out the wrappers of the id"
        if str(entry_point).startswith(_JAX_FAMILIES):
            return "its vector class needs JAX"
        arguments = {**spec.kwargs, **request.kwargs, "num_envs": request.num_envs}
        if spec.max_episode_steps is not None:
            arguments.setdefault("max_episode_steps", spec.max_episode_steps)
        try:
            creator = registration.load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
            inspect.signature(creator).bind(**arguments)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            return f"its vector class does not take these arguments ({describe_error(error, 1000)})"
        return None


class AtariBackend(Backend):
    """`native` for Atari: all games in one call of ale-py's C++ vector env."""

    def refuses(self, request: EnvRequest) -> str | None:
        if request.wrappers:
            return WRAPPERS_REFUSED
        if request.kwargs:
            return f"it takes no {', '.join(request.kwargs)} together with env_kwargs.atari, use vector_backend 'sync'"
        return None

    def make(self, request: EnvRequest) -> AnyVectorEnv:
        assert request.spec is not None and request.atari is not None
        return AtariVector(request.spec, request.num_envs, request.atari)


class EnvPoolBackend(Backend):
    """`envpool`: the C++ form that the package envpool has of an id, in threads. Only if it is asked for by name."""

    def refuses(self, request: EnvRequest) -> str | None:
        if not is_installed():
            return f"envpool is not installed: with Python 3.12 or newer, {install_hint('envpool')}"
        if request.spec is None or request.spec.id not in known_ids():
            return "EnvPool does not have it, use vector_backend 'auto'"
        if request.wrappers:
            return WRAPPERS_REFUSED
        if request.atari is not None:
            return "env_kwargs.atari has C++ threads with vector_backend 'native'"
        if request.image is not None or request.observation_keys:
            return "env_kwargs.image and observation_keys need vector_backend 'auto', 'sync' or 'async'"
        return None

    def make(self, request: EnvRequest) -> AnyVectorEnv:
        assert request.spec is not None
        return _masked(EnvPoolVector(request.spec, request.num_envs, dict(request.kwargs)), request)


SYNC, ASYNC, BATCHED, NATIVE, ATARI = SyncBackend(), AsyncBackend(), BatchedBackend(), NativeBackend(), AtariBackend()
ENVPOOL = EnvPoolBackend()


def candidates(request: EnvRequest) -> tuple[Backend, ...]:
    """The backends for a request, in the order in which they are tried. `auto` is the first that does not refuse."""
    native = NATIVE if request.atari is None else ATARI
    if request.backend != "auto":
        by_name = {"native": native, "batched": BATCHED, "sync": SYNC, "async": ASYNC, "envpool": ENVPOOL}
        return (by_name[request.backend],)
    if request.atari is not None:
        return (ATARI,)  # not `sync` instead: the run would be many times slower, and nothing would say why
    return (SYNC,) if request.num_envs == 1 else (BATCHED, NATIVE, SYNC)


def make_vector(request: EnvRequest) -> AnyVectorEnv:
    """The request's envs from the first backend that takes it. If all refuse, BackendRefused has the last reason."""
    reason = ""
    for backend in candidates(request):
        refusal = backend.refuses(request)
        if refusal is None:
            try:
                return backend.make(request)
            except BackendRefused as refused:
                refusal = str(refused)
        reason = refusal
    raise BackendRefused(reason)


def known_autoreset_mode(envs: AnyVectorEnv) -> AutoresetMode | None:
    """SAME_STEP or NEXT_STEP as the env's metadata says; None if it says neither."""
    entry = (envs.metadata or {}).get("autoreset_mode")
    usable = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
    return next((mode for mode in usable if entry in (mode, mode.value, mode.name)), None)


def _lives_refused(request: EnvRequest) -> str | None:
    if request.atari is not None and request.atari.episodic_life:
        return "env_kwargs.atari.episodic_life needs vector_backend 'auto' or 'native'"
    return None


def _masked(envs: AnyVectorEnv, request: EnvRequest) -> AnyVectorEnv:
    return masked_vector(MaskVelocityVector(envs) if request.mask_velocity else envs, request.action_masks)
