"""`vector_backend: envpool`: refusals everywhere; with the package, its envs step by step against Gymnasium's own.

`make envpool` installs the package into an environment of its own and runs this file there.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_training.envs import backends, envpool_vector
from rl_training.envs.factory import backend_of, make_vector_env
from rl_training.errors import EnvError

HERE = pytest.mark.skipif(not envpool_vector.is_installed(), reason="envpool is not installed: run `make envpool`")
CLASSIC = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")


def pool(env_id: str, num_envs: int = 3, **kwargs: Any) -> Any:
    return make_vector_env(env_id, num_envs, env_kwargs=kwargs, backend="envpool")


def test_without_the_package_it_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "is_installed", lambda: False)
    with pytest.raises(EnvError, match=r"envpool is not installed: with Python 3\.12 .* extra `envpool`") as refusal:
        pool("CartPole-v1")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "words"),
    [
        ("test_envpool:Nothing", {}, "EnvPool does not have it"),
        ("CartPole-v1", {"wrappers": ["gymnasium.wrappers:TimeAwareObservation"]}, "wrappers wrap single envs"),
        ("CartPole-v1", {"image": True}, "env_kwargs.image"),
    ],
)
def test_what_a_pool_cannot_do_is_refused(
    env_id: str, kwargs: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "is_installed", lambda: True)
    monkeypatch.setattr(backends, "known_ids", lambda: frozenset({"CartPole-v1"}))
    source: Any = (lambda: gym.make("CartPole-v1")) if env_id.startswith("test_envpool") else env_id
    with pytest.raises(EnvError, match=words):
        make_vector_env(source, 2, env_kwargs=kwargs, backend="envpool")


# --- with the package ------------------------------------------------------------------------------------------


def put(env: Any, obs: np.ndarray, env_id: str) -> None:
    """The state of Gymnasium's env that shows `obs`."""
    inner, row = env.unwrapped, obs.astype(np.float64)
    if env_id == "Acrobot-v1":
        angles = math.atan2(row[1], row[0]), math.atan2(row[3], row[2])
        inner.state = np.array([*angles, row[4], row[5]])
    elif env_id == "Pendulum-v1":
        inner.state = np.array([math.atan2(row[1], row[0]), row[2]])
    elif env_id == "HalfCheetah-v5":
        inner.set_state(np.concatenate([[0.0], row[:8]]), row[8:])
    else:
        inner.state = row.copy()


@HERE
@pytest.mark.parametrize("env_id", [*CLASSIC, "HalfCheetah-v5"])
def test_every_step_equals_that_of_gymnasium(env_id: str) -> None:
    """Each step starts from the pool's own state, so that float32 and float64 cannot drift apart."""
    if env_id == "HalfCheetah-v5":
        pytest.importorskip("mujoco")
    limit = 30
    envs, single = pool(env_id, 2, max_episode_steps=limit), gym.make(env_id, max_episode_steps=10**9)
    single.reset(seed=0)
    if hasattr(single.unwrapped, "screen"):  # CartPole warns about steps after an end; each of ours is a first one
        single = single.unwrapped
    assert envs.single_observation_space == single.observation_space
    assert envs.single_action_space == single.action_space
    rng = np.random.default_rng(0)
    obs, _ = envs.reset(seed=7)
    elapsed, fresh = np.zeros(2, int), np.zeros(2, bool)
    compared = 0
    for _ in range(200):
        space = single.action_space
        actions = (
            rng.integers(space.n, size=2)
            if hasattr(space, "n")
            else rng.uniform(space.low, space.high, (2, *space.shape))
        )
        if not hasattr(space, "n"):
            actions = actions.astype(np.float32)
        new_obs, rewards, terminated, truncated, _ = envs.step(actions)
        for env in range(2):
            if fresh[env]:  # this step was a reset: its action is ignored
                assert rewards[env] == 0 and not terminated[env] and not truncated[env]
                elapsed[env], fresh[env] = 0, False
                continue
            elapsed[env] += 1
            put(single, obs[env], env_id)
            if hasattr(single.unwrapped, "steps_beyond_terminated"):
                single.unwrapped.steps_beyond_terminated = None
            expected, reward, over, _, _ = single.step(actions[env])
            np.testing.assert_allclose(new_obs[env], expected, rtol=2e-3, atol=2e-3)
            assert rewards[env] == pytest.approx(reward, rel=2e-3, abs=2e-3)
            assert bool(terminated[env]) == over
            assert bool(truncated[env]) == (elapsed[env] == limit and not over)
            fresh[env] = over or elapsed[env] == limit
            compared += 1
        obs = new_obs.copy()
    assert compared > 300
    envs.close()


@HERE
def test_a_seed_decides_everything_again_and_again() -> None:
    envs = pool("CartPole-v1")
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP and backend_of(envs) == "envpool"
    runs = []
    for seed in (5, 5, 6):
        obs, _ = envs.reset(seed=seed)
        seen = [obs.copy()]
        for step in range(60):
            seen.append(envs.step(np.full(3, step % 2))[0].copy())
        runs.append(np.stack(seen))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0][0][0], runs[0][0][1]), "each env has its own seed"
    envs.close()


@HERE
def test_velocities_can_be_hidden() -> None:
    envs = pool("CartPole-v1", 2, mask_velocity=True)
    assert envs.reset(seed=1)[0].shape == (2, 2)
    envs.close()


@HERE
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_run_trains_and_resumes_exactly(algo: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from rl_training.runtime.workflows import resume, train
    from run_cases import Case, assert_same_run, stop_at

    env_id = "CartPole-v1" if algo == "ppo" else "Pendulum-v1"
    settings = {"num_steps": 10, "minibatch_size": 8} if algo == "ppo" else {"learning_starts": 20, "batch_size": 8}
    case = Case(algo, env_id, num_envs=2, settings=settings, options={"vector_backend": "envpool"})
    whole = train(case.config(tmp_path / "whole"), show=False)
    half = train(case.config(tmp_path / "halves"), show=False, callback=stop_at(case.steps // 2))
    assert_same_run(whole.run_dir, resume(half.run_dir, show=False).run_dir)
