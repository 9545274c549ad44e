"""Which backend runs which env: a table recorded before backends had classes, and the reasons they give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from painted_env import Painted
from rl_training.envs.atari import AtariVector
from rl_training.envs.backends import ASYNC, ATARI, BATCHED, NATIVE, SYNC, candidates
from rl_training.envs.batched_classic import BatchedVector
from rl_training.envs.env_request import EnvRequest
from rl_training.envs.env_specs import find_spec
from rl_training.envs.factory import make_vector_env
from rl_training.envs.probes import ConstantRewardProbe
from rl_training.envs.processes.async_vector import AsyncVector
from rl_training.envs.sync_vector import SyncVector
from rl_training.envs.velocity_mask import MaskVelocityVector
from rl_training.errors import ConfigError, EnvError

BACKENDS: tuple[Any, ...] = ("auto", "native", "batched", "sync", "async")  # envpool: test_envpool.py


class OwnEnv(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, level: int = 0) -> None:
        self.level = level


class OwnVector(VectorEnv[Any, Any, Any]):
    def __init__(self, num_envs: int, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = OwnEnv.observation_space, OwnEnv.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)


def endless_vector(num_envs: int) -> VectorEnv[Any, Any, Any]:
    return OwnVector(num_envs, AutoresetMode.DISABLED)


@pytest.fixture(autouse=True)
def own_ids() -> Iterator[None]:
    gym.register("test/Own-v0", entry_point=OwnEnv, vector_entry_point=OwnVector)
    gym.register("test/Endless-v0", entry_point=OwnEnv, vector_entry_point=endless_vector)
    yield
    # Only these: ale_py registers its games when it is imported, which happens once.
    for env_id in [env_id for env_id in gym.registry if env_id.startswith("test/")]:
        del gym.registry[env_id]


MASK = {"mask_velocity": True}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "CartPole": ("CartPole-v1", {}),
    "CartPole-v0": ("CartPole-v0", {}),
    "CartPole, limit": ("CartPole-v1", {"max_episode_steps": 7}),
    "CartPole, typo": ("CartPole-v1", {"gravitty": 1}),
    "CartPole, masked": ("CartPole-v1", MASK),
    "CartPole, not masked": ("CartPole-v1", {"mask_velocity": False}),
    "CartPole, masked, limit": ("CartPole-v1", {**MASK, "max_episode_steps": 7}),
    "CartPole, wrong mask": ("CartPole-v1", {"mask_velocity": 3}),
    "CartPole, atari": ("CartPole-v1", {"atari": True}),
    "CartPole, image": ("CartPole-v1", {"image": True}),
    "CartPole, no image": ("CartPole-v1", {"image": False}),
    "CartPole, both": ("CartPole-v1", {"image": True, "atari": True}),
    "CartPole, wrong atari": ("CartPole-v1", {"atari": {"stak": 1}}),
    "Pendulum": ("Pendulum-v1", {}),
    "Pendulum, gravity": ("Pendulum-v1", {"g": 9.0}),
    "Pendulum, masked": ("Pendulum-v1", MASK),
    "MountainCar": ("MountainCar-v0", {}),
    "MountainCar, masked": ("MountainCar-v0", MASK),
    "LunarLander": ("LunarLander-v3", {}),
    "LunarLander, masked": ("LunarLander-v3", MASK),
    "Pong": ("ALE/Pong-v5", {}),
    "Pong, no atari": ("ALE/Pong-v5", {"atari": False}),
    "Pong, atari": ("ALE/Pong-v5", {"atari": True}),
    "Pong, lives": ("ALE/Pong-v5", {"atari": {"episodic_life": True}}),
    "Pong, atari, difficulty": ("ALE/Pong-v5", {"atari": True, "difficulty": 0}),
    "Pong, atari, masked": ("ALE/Pong-v5", {"atari": True, **MASK}),
    "Pong, image": ("ALE/Pong-v5", {"image": {"grayscale": True}}),
    "images": (Painted, {}),
    "images, stack": (Painted, {"image": {"stack": 2}}),
    "callable": (ConstantRewardProbe, {}),
    "callable, kwargs": (ConstantRewardProbe, {"continuous": True}),
    "callable, masked": (ConstantRewardProbe, MASK),
    "callable, atari": (ConstantRewardProbe, {"atari": True}),
    "own vector": ("test/Own-v0", {}),
    "own vector, no image": ("test/Own-v0", {"image": False}),
    "own vector, image": ("test/Own-v0", {"image": True}),
    "own vector, level": ("test/Own-v0", {"level": 3}),
    "own vector, no resets": ("test/Endless-v0", {}),
    "unknown id": ("Nope-v0", {}),
    "not callable": (3, {}),
}
# The name, then auto with 1 env, auto with 4, native, batched, sync, async. EnvError is -, ConfigError is !.
OUTCOMES = """
CartPole                | sync  | batched        | native        | batched        | sync | async
CartPole-v0             | sync  | native         | native        | -              | sync | async
CartPole, limit         | sync  | native         | native        | -              | sync | async
CartPole, typo          | -     | -              | -             | -              | -    | -
CartPole, masked        | sync  | masked batched | masked native | masked batched | sync | async
CartPole, not masked    | sync  | batched        | native        | batched        | sync | async
CartPole, masked, limit | sync  | masked native  | masked native | -              | sync | async
CartPole, wrong mask    | -     | -              | -             | -              | -    | -
CartPole, atari         | -     | -              | -             | -              | -    | -
CartPole, image         | -     | -              | -             | -              | -    | -
CartPole, no image      | sync  | native         | native        | -              | sync | async
CartPole, both          | !     | !              | !             | !              | !    | !
CartPole, wrong atari   | !     | !              | !             | !              | !    | !
Pendulum                | sync  | batched        | -             | batched        | sync | async
Pendulum, gravity       | sync  | sync           | -             | -              | sync | async
Pendulum, masked        | sync  | masked batched | -             | masked batched | sync | async
MountainCar             | sync  | batched        | -             | batched        | sync | async
MountainCar, masked     | -     | -              | -             | -              | -    | -
LunarLander             | sync  | sync           | -             | -              | sync | async
LunarLander, masked     | sync  | sync           | -             | -              | sync | async
Pong                    | sync  | sync           | -             | -              | sync | async
Pong, no atari          | sync  | sync           | -             | -              | sync | async
Pong, atari             | atari | atari          | atari         | -              | sync | async
Pong, lives             | atari | atari          | atari         | -              | -    | -
Pong, atari, difficulty | -     | -              | -             | -              | sync | async
Pong, atari, masked     | -     | -              | -             | -              | -    | -
Pong, image             | sync  | sync           | -             | -              | sync | async
images                  | sync  | sync           | -             | -              | sync | async
images, stack           | sync  | sync           | -             | -              | sync | async
callable                | sync  | sync           | -             | -              | sync | async
callable, kwargs        | sync  | sync           | -             | -              | sync | async
callable, masked        | -     | -              | -             | -              | -    | -
callable, atari         | -     | -              | -             | -              | -    | -
own vector              | sync  | native         | native        | -              | sync | async
own vector, no image    | sync  | native         | native        | -              | sync | async
own vector, image       | -     | -              | -             | -              | -    | -
own vector, level       | sync  | sync           | -             | -              | sync | async
own vector, no resets   | sync  | sync           | native        | -              | sync | async
unknown id              | -     | -              | -             | -              | -    | -
not callable            | -     | -              | -             | -              | -    | -
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in OUTCOMES.strip().splitlines()]
TABLE = {name: cells for name, *cells in ROWS}
KINDS: dict[type[Any], str] = {
    SyncVector: "sync",
    AsyncVector: "async",
    BatchedVector: "batched",
    AtariVector: "atari",
    CartPoleVectorEnv: "native",
    OwnVector: "native",
}


def outcome(name: str, num_envs: int, backend: Any) -> str:
    env, kwargs = CASES[name]
    try:
        envs = make_vector_env(env, num_envs, env_kwargs=kwargs, backend=backend)
    except (EnvError, ConfigError) as error:
        assert "\n" not in str(error)
        return "-" if isinstance(error, EnvError) else "!"
    try:
        assert envs.num_envs == num_envs
        kind = next(word for kind, word in KINDS.items() if isinstance(envs.unwrapped, kind))
        return "masked " * isinstance(envs, MaskVelocityVector) + kind
    finally:
        envs.close()


def test_the_table_has_every_case() -> None:
    assert list(TABLE) == list(CASES)


# CartPole's vector class of Gymnasium 1.1 cannot close what it could not make.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function VectorEnv.__del__")
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_env_gets_the_same_backend_or_error_as_ever(name: str, num_envs: int) -> None:
    auto_one, auto_four, *others = TABLE[name]
    expected = dict(zip(BACKENDS, [auto_one if num_envs == 1 else auto_four, *others], strict=True))
    assert {backend: outcome(name, num_envs, backend) for backend in BACKENDS} == expected


def request_for(name: str, num_envs: int = 4, backend: Any = "auto") -> EnvRequest:
    env, kwargs = CASES[name]
    return EnvRequest.parse(find_spec(env) if isinstance(env, str) else env, kwargs, num_envs, backend)


def test_the_order_that_auto_tries() -> None:
    assert candidates(request_for("CartPole")) == (BATCHED, NATIVE, SYNC)
    assert candidates(request_for("CartPole", num_envs=1)) == (SYNC,)
    assert (
        candidates(request_for("Pong, atari")) == candidates(request_for("Pong, atari", backend="native")) == (ATARI,)
    )
    for word, backend in (("native", NATIVE), ("batched", BATCHED), ("sync", SYNC), ("async", ASYNC)):
        assert candidates(request_for("CartPole", backend=word)) == (backend,)


def test_a_request_keeps_the_constructor_keywords_apart_from_ours() -> None:
    request = request_for("CartPole, masked, limit")
    assert request.kwargs == {"max_episode_steps": 7}
    assert request.mask_velocity and request.atari is None and request.image is None
    atari = request_for("Pong, atari, difficulty")
    assert atari.kwargs == {"difficulty": 0}
    assert atari.atari is not None and atari.atari.stack == 4
    stacked = request_for("images, stack")
    assert stacked.spec is None and stacked.image is not None and stacked.image.stack == 2
    assert stacked.kwargs == {}


@pytest.mark.parametrize(
    ("name", "backend", "reason"),
    [
        (
            "Pendulum",
            "native",
            "env 'Pendulum-v1' cannot use vector_backend 'native': it does not have its own vector class",
        ),
        ("LunarLander", "batched", "only CartPole-v1, .* can be batched, use vector_backend 'auto'"),
        ("CartPole, limit", "batched", "takes no env_kwargs except mask_velocity, use vector_backend 'auto'"),
        ("images, stack", "native", "env_kwargs.image needs vector_backend 'auto', 'sync' or 'async'"),
        ("Pong", "native", "clips rewards and loses the score, set env_kwargs.atari=true"),
        ("Pong, lives", "sync", "env_kwargs.atari.episodic_life needs vector_backend 'auto' or 'native'"),
        ("Pong, atari, difficulty", "auto", "takes no difficulty together with env_kwargs.atari, use .* 'sync'"),
        ("Pong, atari, masked", "sync", "env_kwargs.mask_velocity: ALE/Pong-v5 shows images"),
        ("CartPole, atari", "auto", "env_kwargs.atari: CartPole-v1 is not an Atari id .* use env_kwargs.image"),
    ],
)
def test_a_refusal_says_why_and_what_to_use_instead(name: str, backend: Any, reason: str) -> None:
    env, kwargs = CASES[name]
    with pytest.raises(EnvError, match=reason):
        make_vector_env(env, 2, env_kwargs=kwargs, backend=backend)


def test_auto_says_why_it_passes_over_a_vector_class() -> None:
    gym.register("test/Absent-v0", entry_point=OwnEnv, vector_entry_point="module_that_is_absent:Env")
    gym.register("test/Wrapped-v0", entry_point=OwnEnv, vector_entry_point=OwnVector, additional_wrappers=(_wrapper(),))
    reasons = {
        "test/Absent-v0": "module_that_is_absent",
        "test/Wrapped-v0": "wrappers of the id",
        "phys2d/CartPole-v1": "needs JAX",
    }
    for env_id, reason in reasons.items():
        refusal = NATIVE.refuses(EnvRequest.parse(find_spec(env_id), {}, 4))
        assert refusal is not None and reason in refusal
    assert NATIVE.refuses(EnvRequest.parse(find_spec("test/Absent-v0"), {}, 4, "native")) is None


def _wrapper() -> Any:
    from gymnasium.envs.registration import WrapperSpec

    return WrapperSpec("Time", "gymnasium.wrappers:TimeAwareObservation", {})


def test_a_masked_vector_env_hides_velocities_of_the_batched_form() -> None:
    env, kwargs = CASES["CartPole, masked"]
    observations, _ = make_vector_env(env, 4, env_kwargs=kwargs).reset(seed=0)
    assert np.shape(observations) == (4, 2)
