"""Making envs: ids, callables and vector envs, every backend, and what is said when it does not work."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rl_training.envs import probes
from rl_training.envs.batched_classic import BATCHED_ENVS
from rl_training.envs.factory import autoreset_mode, backend_of, make_env, make_vector_env
from rl_training.envs.processes.async_vector import AsyncVector
from rl_training.errors import ConfigError, EnvError, install_hint
from waiting import DEADLINE_SECONDS


class BrokenEnv(gym.Env):
    def __init__(self, size: int = 1) -> None:
        raise OSError("no level file\nat all")


class PlainVectorEnv(VectorEnv):
    """The least a vector env can be: nothing is said about resets."""

    def __init__(self, num_envs: int, metadata: dict[str, Any]) -> None:
        self.num_envs = num_envs
        self.metadata = metadata


@pytest.fixture
def registry_as_before() -> Iterator[None]:
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


def test_one_env_is_made_with_its_arguments_and_time_limit() -> None:
    env = make_env("CartPole-v1", {"sutton_barto_reward": True})
    env.reset(seed=0)
    assert env.step(0)[1] == 0.0
    assert env.spec is not None
    assert env.spec.max_episode_steps == 500
    short = make_env("CartPole-v1", {"max_episode_steps": 2})
    short.reset(seed=0)
    short.step(0)
    assert short.step(1)[3]


def test_render_mode_reaches_the_env() -> None:
    assert make_env("CartPole-v1", render_mode="rgb_array").render_mode == "rgb_array"
    assert make_env("CartPole-v1").render_mode is None


def test_a_callable_makes_the_env_with_its_arguments() -> None:
    env = make_env(probes.DelayedRewardProbe, {"length": 5})
    assert isinstance(env, probes.DelayedRewardProbe)
    assert env.length == 5
    vector = make_vector_env(lambda length: probes.DelayedRewardProbe(length), 3, env_kwargs={"length": 4})
    assert isinstance(vector, SyncVectorEnv)
    assert [sub_env.unwrapped.length for sub_env in vector.envs] == [4, 4, 4]


def test_auto_batches_several_envs_of_classic_control() -> None:
    for env_id, kind in BATCHED_ENVS.items():
        several = make_vector_env(env_id, 3)
        assert type(several) is kind
        assert several.num_envs == 3
        assert autoreset_mode(several) is AutoresetMode.SAME_STEP
        assert isinstance(make_vector_env(env_id, 1), SyncVectorEnv)
    assert isinstance(make_vector_env("Pendulum-v1", 2, env_kwargs={"g": 9.0}), SyncVectorEnv)


def test_auto_takes_the_native_vector_class_where_it_cannot_batch() -> None:
    native = make_vector_env("CartPole-v0", 3)
    assert type(native.unwrapped).__name__ == "CartPoleVectorEnv"
    assert native.num_envs == 3
    assert autoreset_mode(native) is AutoresetMode.NEXT_STEP


def test_what_auto_came_to_has_a_name() -> None:
    assert backend_of(make_vector_env("CartPole-v1", 2)) == "batched"
    assert backend_of(make_vector_env("CartPole-v1", 1)) == "sync"
    assert backend_of(make_vector_env("CartPole-v0", 2)) == "native"
    assert backend_of(make_vector_env("CartPole-v1", 2, backend="async")) == "async"
    assert backend_of(make_vector_env("ALE/Pong-v5", 2, env_kwargs={"atari": True})) == "native"


def test_native_cartpole_keeps_the_time_limit_of_its_id() -> None:
    for env_id, limit in (("CartPole-v0", 200), ("CartPole-v1", 500)):
        assert make_vector_env(env_id, 1, backend="native").unwrapped.max_episode_steps == limit
    shortened = make_vector_env("CartPole-v1", 2, env_kwargs={"max_episode_steps": 7})
    assert shortened.unwrapped.max_episode_steps == 7


def test_auto_falls_back_to_sync_when_the_native_class_does_not_serve(registry_as_before: None) -> None:
    class Own(gym.Env):
        observation_space = gym.spaces.Discrete(2)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, level: int = 0) -> None:
            self.level = level

    def without_level(num_envs: int) -> VectorEnv:
        return PlainVectorEnv(num_envs, {"autoreset_mode": AutoresetMode.SAME_STEP})

    def without_resets(num_envs: int, level: int = 0) -> VectorEnv:
        return PlainVectorEnv(num_envs, {"autoreset_mode": AutoresetMode.DISABLED})

    gym.register("test/Narrow-v0", entry_point=Own, vector_entry_point=without_level)
    gym.register("test/Endless-v0", entry_point=Own, vector_entry_point=without_resets)
    gym.register("test/Absent-v0", entry_point=Own, vector_entry_point="module_that_is_absent:Env")
    assert isinstance(make_vector_env("test/Narrow-v0", 2), PlainVectorEnv)
    for env_id in ("test/Narrow-v0", "test/Endless-v0", "test/Absent-v0"):
        vector = make_vector_env(env_id, 2, env_kwargs={"level": 3})
        assert isinstance(vector, SyncVectorEnv)
        assert vector.get_attr("level") == (3, 3)
    with pytest.raises(EnvError, match="level"):
        make_vector_env("test/Narrow-v0", 2, env_kwargs={"level": 3}, backend="native")


def test_native_is_refused_where_there_is_none() -> None:
    for env in ("Pendulum-v1", probes.ConstantRewardProbe):
        with pytest.raises(EnvError, match=r"not have its own vector class.*'sync'"):
            make_vector_env(env, 2, backend="native")


@pytest.mark.parametrize(("backend", "kind"), [("sync", SyncVectorEnv), ("async", AsyncVector)])
def test_sync_and_async_reset_in_the_same_step(backend: Any, kind: type) -> None:
    vector = make_vector_env(partial(probes.AutoresetCanaryProbe, 2), 2, backend=backend)
    try:
        assert isinstance(vector, kind)
        assert autoreset_mode(vector) is AutoresetMode.SAME_STEP
        vector.reset(seed=0)
        vector.step(np.zeros(2, np.int64))
        observations, rewards, terminated, _, info = vector.step(np.zeros(2, np.int64))
        np.testing.assert_array_equal(observations, [[1.0], [1.0]])
        np.testing.assert_array_equal(rewards, [2.0, 2.0])
        assert terminated.all()
        np.testing.assert_array_equal(np.stack(list(info["final_obs"])), [[-1.0], [-1.0]])
    finally:
        vector.close()


@pytest.mark.parametrize("backend", ["native", "sync", "async"])
def test_seeds_differ_between_envs_and_repeat_between_runs(backend: Any) -> None:
    runs = []
    for _ in range(2):
        vector = make_vector_env("CartPole-v1", 3, backend=backend)
        try:
            first, _ = vector.reset(seed=11)
            later = [vector.step(np.array([0, 1, 0]))[0] for _ in range(30)]
            runs.append(np.stack([first, *later]))
        finally:
            vector.close()
    np.testing.assert_array_equal(runs[0], runs[1])
    assert len({row.tobytes() for row in runs[0][0]}) == 3


def test_a_vector_env_is_taken_as_it_is() -> None:
    given = probes.probe_vector_env(probes.ConstantRewardProbe, 3)
    assert make_vector_env(given, 3) is given
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(given)
    assert make_vector_env(wrapped, 3) is wrapped
    with pytest.raises(EnvError, match="num_envs is 4 but the given vector env has 3 envs"):
        make_vector_env(given, 4)
    with pytest.raises(EnvError, match="already made"):
        make_vector_env(given, 3, env_kwargs={"length": 1})
    with pytest.raises(EnvError, match="already made"):
        make_vector_env(given, 3, backend="async")


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_autoreset_mode_is_read_as_enum_value_or_name(mode: AutoresetMode) -> None:
    for written in (mode, mode.value, mode.name):
        assert autoreset_mode(PlainVectorEnv(1, {"autoreset_mode": written})) is mode
    assert autoreset_mode(probes.probe_vector_env(probes.ConstantRewardProbe, 1, autoreset_mode=mode)) is mode


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({}, "missing"),
        ({"autoreset_mode": AutoresetMode.DISABLED}, "DISABLED"),
        ({"autoreset_mode": "odd"}, "odd"),
    ],
)
def test_a_vector_env_that_does_not_reset_itself_is_refused(metadata: dict[str, Any], found: str) -> None:
    with pytest.raises(EnvError, match=f"PlainVectorEnv has autoreset mode .*{found}.*SAME_STEP"):
        autoreset_mode(PlainVectorEnv(1, metadata))


def test_an_env_registered_by_a_module_is_found_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry_as_before: None
) -> None:
    (tmp_path / "rooms_of_mine.py").write_text(
        "import gymnasium\n"
        "from rl_training.envs.probes import DelayedRewardProbe\n"
        "gymnasium.register('Rooms-v0', entry_point=DelayedRewardProbe, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rooms_of_mine", raising=False)
    env = make_env("rooms_of_mine:Rooms-v0", {"length": 6})
    assert env.unwrapped.length == 6
    assert make_vector_env("rooms_of_mine:Rooms-v0", 2, env_kwargs={"length": 6}).get_attr("length") == (6, 6)
    with pytest.raises(EnvError, match=r"'rooms_of_mine:Romms-v0' is not registered.*'rooms_of_mine:Rooms-v0'"):
        make_env("rooms_of_mine:Romms-v0")
    monkeypatch.delitem(sys.modules, "rooms_of_mine")


def test_an_id_that_a_module_does_not_register_is_answered_with_those_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry_as_before: None
) -> None:
    (tmp_path / "halls_of_mine.py").write_text(
        "import gymnasium\nclass Hall(gymnasium.Env): pass\ngymnasium.register('Hall-v0', entry_point=Hall)\n"
    )
    (tmp_path / "nothing_of_mine.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for wrong, hint in (
        ("halls_of_mine:Hal-v0", "did you mean 'halls_of_mine:Hall-v0'?"),
        ("halls_of_mine:CartPol-v1", "'halls_of_mine' registers 'halls_of_mine:Hall-v0'"),
        ("nothing_of_mine:Qqqqzzz-v0", "'nothing_of_mine' does not register it; call gymnasium.register"),
    ):
        with pytest.raises(EnvError, match=re.escape(f"env '{wrong}' is not registered: {hint}")):
            make_env(wrong)
    for module in ("halls_of_mine", "nothing_of_mine"):
        monkeypatch.delitem(sys.modules, module)


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvError, match=r"'absent_rooms'.*PYTHONPATH"):
        make_env("absent_rooms:Rooms-v0")
    (tmp_path / "rooms_that_fail.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match="RuntimeError: no licence"):
        make_env("rooms_that_fail:Rooms-v0")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("Pendulm-v1", "Pendulum-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
    ],
)
def test_an_unknown_id_names_the_nearest_in_its_newest_version(wrong: str, nearest: str) -> None:
    for make in (make_env, partial(make_vector_env, num_envs=2)):
        with pytest.raises(EnvError, match=f"env '{wrong}' is not registered: did you mean '{nearest}'"):
            make(wrong)


@pytest.mark.parametrize(
    ("wrong", "package"), [("FetchReachx-v4", "gymnasium_robotics"), ("MiniGrid-Nowhere-v0", "minigrid")]
)
def test_an_id_of_a_known_package_is_told_its_prefix(wrong: str, package: str) -> None:
    with pytest.raises(EnvError, match=f"'{wrong}' is not registered: did you mean '{package}:{wrong}'"):
        make_env(wrong)


def test_an_id_like_no_other_is_told_how_to_bring_its_own() -> None:
    with pytest.raises(EnvError, match=r"'Qqqqzzz-v0' is not registered.*module:EnvId"):
        make_env("Qqqqzzz-v0")


@pytest.mark.parametrize("env_id", ["x" * 20_000, "y" * 20_000 + ":Any-v0", "ALE/" + "z" * 20_000])
def test_a_long_id_is_shortened_and_the_way_out_is_not(env_id: str) -> None:
    with pytest.raises(EnvError, match=r"module:EnvId|PYTHONPATH") as caught:
        make_env(env_id)
    assert len(str(caught.value)) < 1000


def test_an_id_without_version_is_the_newest_and_old_versions_are_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_env("CartPole").spec.id == "CartPole-v1"
        assert make_env("CartPole-v0").spec.id == "CartPole-v0"
        assert make_vector_env("CartPole-v0", 2).num_envs == 2


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, registry_as_before: None) -> None:
    # None in sys.modules makes the import fail, whether or not the package is installed.
    for module in ("ale_py", "Box2D", "mujoco"):
        monkeypatch.setitem(sys.modules, module, None)
    for loaded in [name for name in sys.modules if name.startswith(("gymnasium.envs.box2d", "gymnasium.envs.mujoco"))]:
        monkeypatch.delitem(sys.modules, loaded)
    for env_id, extra in (("LunarLander-v3", "box2d"), ("Hopper-v5", "mujoco"), ("ALE/Pong-v5", "atari")):
        with pytest.raises(EnvError) as caught:
            make_vector_env(env_id, 1)
        assert f"env '{env_id}'" in str(caught.value)
        assert str(caught.value).endswith(install_hint(extra))


def test_drawing_without_its_libraries_names_the_video_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_pygame(*_: Any, **__: Any) -> Any:
        raise gym.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(gym, "make", without_pygame)
    with pytest.raises(EnvError, match="install the extra `video`"):
        make_env("CartPole-v1", render_mode="rgb_array")


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_constructor_that_raises_is_told_on_one_line(backend: Any) -> None:
    with pytest.raises(EnvError) as caught:
        make_vector_env(BrokenEnv, 2, env_kwargs={"size": 3}, backend=backend)
    assert str(caught.value) == "env BrokenEnv cannot be made: OSError: no level file at all (env_kwargs: {'size': 3})"


def test_an_argument_the_env_does_not_take_is_named() -> None:
    with pytest.raises(EnvError, match=r"'CartPole-v1' cannot be made.*gravitty"):
        make_vector_env("CartPole-v1", 2, env_kwargs={"gravitty": 3})


def test_what_is_no_env_is_refused() -> None:
    with pytest.raises(EnvError, match="give an env id or a callable that makes the env, not int"):
        make_vector_env(3, 1)  # type: ignore[arg-type]
    with pytest.raises(EnvError, match=r"returned int, not a gymnasium.Env"):
        make_env(lambda: 3)


def test_settings_out_of_range_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="num_envs is 0"):
        make_vector_env("CartPole-v1", 0)
    with pytest.raises(ConfigError, match="'threads' is unknown: use one of auto, native, batched, sync, async"):
        make_vector_env("CartPole-v1", 1, backend="threads")


def test_the_package_of_envs_imports_gymnasium_only_on_demand() -> None:
    program = (
        "import sys, rl_training.envs as envs\n"
        "assert 'gymnasium' not in sys.modules\n"
        "assert all(callable(getattr(envs, name)) for name in envs.__all__)\n"
        "assert 'gymnasium' in sys.modules and 'torch' not in sys.modules\n"
        "assert not hasattr(envs, 'nothing_of_the_kind')\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert finished.returncode == 0, finished.stderr
