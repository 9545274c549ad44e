"""The batched classic-control envs against Gymnasium's single ones, step by step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_training.envs.batched_classic import BATCHED_ENVS
from rl_training.envs.factory import make_vector_env
from rl_training.errors import EnvError

# Gymnasium keeps some of these states in float32 or in Python floats; the batched ones follow to rounding.
TOLERANCE = 1e-5


def place(single: gym.Env, state: np.ndarray, elapsed: int) -> None:
    """Put a single env where row of a batched one is, through its public-by-habit `state`."""
    inner = single.unwrapped
    kind = type(inner).__name__
    inner.steps_beyond_terminated = None  # CartPole's memory that an episode is over
    inner.state = tuple(state) if kind == "MountainCarEnv" else np.array(state, dtype=np.float64)
    wrapper = single
    while not isinstance(wrapper, gym.wrappers.TimeLimit):
        wrapper = wrapper.env
    wrapper._elapsed_steps = elapsed


@pytest.mark.parametrize("env_id", sorted(BATCHED_ENVS))
def test_every_step_equals_the_single_env(env_id):
    envs = BATCHED_ENVS[env_id](3)
    single = gym.make(env_id)
    single.reset(seed=0)
    observations, _ = envs.reset(seed=1)
    rng = np.random.default_rng(2)
    ends = 0
    for step in range(700):
        actions = sample_actions(envs, rng)
        before, elapsed = envs.state.copy(), envs.elapsed.copy()
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        for row in range(3):
            place(single, before[:, row], int(elapsed[row]))
            expected, reward, single_terminated, single_truncated, _ = single.step(actions[row])
            ended = terminated[row] or truncated[row]
            seen = infos["final_obs"][row] if ended else observations[row]
            np.testing.assert_allclose(seen, expected, atol=TOLERANCE, err_msg=f"step {step}, row {row}")
            assert rewards[row] == pytest.approx(reward, abs=TOLERANCE)
            assert (terminated[row], truncated[row]) == (single_terminated, single_truncated)
            ends += ended
    assert ends > 0, "no episode ended: the boundary was not tried"


def sample_actions(envs, rng: np.random.Generator) -> np.ndarray:
    """Random, with a bias to the right that holds for a while, so that cars reach flags."""
    space = envs.single_action_space
    if isinstance(space, gym.spaces.Discrete):
        if envs.env_id == "MountainCar-v0":
            return np.where(envs.state[1] >= 0, 2, 0)
        return rng.integers(space.n, size=envs.num_envs)
    if envs.env_id == "MountainCarContinuous-v0":
        return np.where(envs.state[1] >= 0, 1.0, -1.0).astype(np.float32)[:, None]
    return rng.uniform(-3, 3, (envs.num_envs, 1)).astype(np.float32)


@pytest.mark.parametrize("env_id", sorted(BATCHED_ENVS))
def test_it_announces_itself_and_repeats_with_its_seed(env_id):
    envs = BATCHED_ENVS[env_id](4)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    first, _ = envs.reset(seed=5)
    assert len({row.tobytes() for row in first}) == 4, "envs must start in different states"
    assert envs.observation_space.contains(first)
    other, _ = BATCHED_ENVS[env_id](4).reset(seed=5)
    np.testing.assert_array_equal(first, other)


def test_starts_are_drawn_from_gymnasiums_own_ranges():
    for env_id, kind in BATCHED_ENVS.items():
        batched, _ = kind(4000).reset(seed=0)
        single = gym.make(env_id)
        singles = np.stack([single.reset(seed=seed)[0] for seed in range(400)])
        np.testing.assert_allclose(batched.mean(0), singles.mean(0), atol=6 * singles.std(0).max() / 20)
        np.testing.assert_allclose(batched.std(0), singles.std(0), rtol=0.15, atol=1e-3)


def test_the_factory_makes_them_by_name_and_refuses_what_it_cannot_batch():
    assert isinstance(make_vector_env("Acrobot-v1", 2, backend="batched"), BATCHED_ENVS["Acrobot-v1"])
    with pytest.raises(EnvError, match=r"FrozenLake-v1.*CartPole-v1.*can be batched"):
        make_vector_env("FrozenLake-v1", 2, backend="batched")
    with pytest.raises(EnvError, match="takes no env_kwargs"):
        make_vector_env("Pendulum-v1", 2, env_kwargs={"g": 9.81}, backend="batched")


def test_an_episode_that_ends_starts_again_in_the_same_step():
    envs = BATCHED_ENVS["CartPole-v1"](2)
    envs.reset(seed=0)
    envs.state[:, 0] = [2.39, 5.0, 0.0, 0.0]
    observations, _, terminated, _, infos = envs.step(np.array([1, 1]))
    assert terminated.tolist() == [True, False]
    assert infos["final_obs"][0, 0] > 2.4 and abs(observations[0, 0]) <= 0.05
    assert infos["_final_obs"].tolist() == [True, False]
    assert envs.elapsed.tolist() == [0, 1]
