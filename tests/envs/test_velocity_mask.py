"""Velocities taken out of observations: what is left, in single envs and in every vector backend, and who refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.envs.factory import autoreset_mode, make_env, make_vector_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import EnvError

MASK = {"mask_velocity": True}
LEFT = {"CartPole-v1": [0, 2], "Pendulum-v1": [0, 1], "LunarLander-v3": [0, 1, 4, 6, 7]}
EVERY_ENV = pytest.mark.parametrize(("env_id", "visible"), LEFT.items())


@EVERY_ENV
def test_a_masked_env_is_the_env_without_its_velocities(env_id: str, visible: list[int]) -> None:
    plain, masked = make_env(env_id), make_env(env_id, MASK)
    space: Any = masked.observation_space
    assert space.shape == (len(visible),) and space.dtype == np.float32
    np.testing.assert_array_equal(space.low, plain.observation_space.low[visible])
    whole, _ = plain.reset(seed=3)
    shown, _ = masked.reset(seed=3)
    np.testing.assert_array_equal(shown, whole[visible])
    plain.action_space.seed(0)
    for _ in range(30):
        action = plain.action_space.sample()
        whole, reward, *ends, _ = plain.step(action)
        shown, masked_reward, *masked_ends, _ = masked.step(action)
        np.testing.assert_array_equal(shown, whole[visible])
        assert space.contains(shown) and (reward, ends) == (masked_reward, masked_ends)
        if any(ends):
            break


@pytest.mark.parametrize(
    ("env_id", "backend"),
    [
        ("CartPole-v1", "auto"),
        ("CartPole-v1", "native"),
        ("CartPole-v1", "batched"),
        ("CartPole-v1", "sync"),
        ("CartPole-v1", "async"),
        ("Pendulum-v1", "batched"),
        ("LunarLander-v3", "sync"),
    ],
)
def test_every_vector_backend_is_masked_in_final_observations_too(env_id: str, backend: Any) -> None:
    visible = LEFT[env_id]
    plain, masked = (make_vector_env(env_id, 3, env_kwargs=kwargs, backend=backend) for kwargs in ({}, MASK))
    try:
        assert type(plain.unwrapped) is type(masked.unwrapped) and autoreset_mode(plain) is autoreset_mode(masked)
        assert masked.single_observation_space.shape == (len(visible),)
        assert masked.observation_space.shape == (3, len(visible)) and masked.num_envs == 3
        spaces = Spaces(masked.single_observation_space, masked.single_action_space)
        whole, shown = plain.reset(seed=1)[0], masked.reset(seed=1)[0]
        plain.action_space.seed(0)
        finals = 0
        for _ in range(60 if env_id == "CartPole-v1" else 210):
            np.testing.assert_array_equal(spaces.encode(shown), whole[:, visible])
            actions = plain.action_space.sample()
            whole, rewards, terminated, truncated, infos = plain.step(actions)
            shown, masked_rewards, *ends, masked_infos = masked.step(actions)
            np.testing.assert_array_equal(rewards, masked_rewards)
            np.testing.assert_array_equal([terminated, truncated], ends)
            for env in np.flatnonzero(terminated | truncated):
                if autoreset_mode(masked) is AutoresetMode.SAME_STEP:
                    np.testing.assert_array_equal(masked_infos["final_obs"][env], infos["final_obs"][env][visible])
                    finals += 1
        assert finals > 0 or autoreset_mode(masked) is AutoresetMode.NEXT_STEP
    finally:
        plain.close()
        masked.close()


def test_auto_is_the_backend_it_is_without_the_mask() -> None:
    masked, plain = (make_vector_env("CartPole-v1", 2, env_kwargs=kwargs) for kwargs in (MASK, {}))
    assert type(masked.unwrapped) is type(plain.unwrapped) is not SyncVectorEnv


def test_the_envs_own_keywords_go_to_the_env() -> None:
    env = make_env("LunarLander-v3", {**MASK, "continuous": True})
    assert env.action_space.shape == (2,) and env.observation_space.shape == (5,)
    assert make_env("CartPole-v1", {**MASK, "max_episode_steps": 7}).spec.max_episode_steps == 7  # type: ignore[union-attr]


def test_false_masks_nothing() -> None:
    assert make_env("CartPole-v1", {"mask_velocity": False}).observation_space.shape == (4,)
    assert make_vector_env("CartPole-v1", 2, env_kwargs={"mask_velocity": False}).observation_space.shape == (2, 4)


@pytest.mark.parametrize("backend", ["auto", "sync", "batched"])
def test_other_envs_are_refused_in_one_line_with_the_way_out(backend: Any) -> None:
    with pytest.raises(EnvError) as caught:
        make_vector_env("Acrobot-v1", 2, env_kwargs=MASK, backend=backend)
    message = str(caught.value)
    assert "mask_velocity" in message and "Acrobot-v1" in message and "CartPole, Pendulum, LunarLander" in message
    assert "\n" not in message and caught.value.exit_code == 3
    with pytest.raises(EnvError, match="the velocities of Acrobot-v1 are not known"):
        make_env("Acrobot-v1", MASK)


def test_a_value_that_is_no_truth_value_is_refused() -> None:
    with pytest.raises(EnvError, match=r"env_kwargs\.mask_velocity: 'yes' is not valid, expected true"):
        make_env("CartPole-v1", {"mask_velocity": "yes"})


def test_the_batched_backend_still_refuses_other_keywords() -> None:
    with pytest.raises(EnvError, match="takes no env_kwargs except mask_velocity"):
        make_vector_env("CartPole-v1", 2, env_kwargs={**MASK, "sutton_barto_reward": True}, backend="batched")
