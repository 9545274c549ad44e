"""The replay loop: how often it updates, when it explores, and which settings reach their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from replay_helpers import kolmogorov_distance, kolmogorov_limit, make_loop, recording_loop
from rl_training.envs.probes import (
    AutoresetCanaryProbe,
    ConstantRewardProbe,
    ContinuousBanditProbe,
    DelayedRewardProbe,
    probe_vector_env,
)

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


# --- how many updates, and when ---------------------------------------------------------------------------------


def slow_updates(
    num_envs: int, train_frequency: int, gradient_steps: int, learning_starts: int, total: int
) -> list[int]:
    """The env step of every update, found by counting env steps one at a time."""
    updates_at: list[int] = []
    env_steps = since_last_round = 0
    while env_steps + num_envs <= total:
        env_steps += num_envs
        if env_steps < learning_starts:
            continue
        for _ in range(num_envs):
            since_last_round += 1
            if since_last_round == train_frequency:
                since_last_round = 0
                updates_at += [env_steps] * (train_frequency if gradient_steps == -1 else gradient_steps)
    return updates_at


@settings(max_examples=60)
@given(
    num_envs=st.integers(1, 5),
    train_frequency=st.integers(1, 9),
    gradient_steps=st.sampled_from([-1, 1, 2, 3]),
    learning_starts=st.integers(0, 30),
    total=st.integers(31, 60),
)
def test_updates_happen_as_often_as_a_slow_count_says(
    num_envs: int, train_frequency: int, gradient_steps: int, learning_starts: int, total: int
) -> None:
    loop, learner = recording_loop(
        probe_vector_env(DelayedRewardProbe, num_envs, length=3),
        total_timesteps=total,
        train_frequency=train_frequency,
        gradient_steps=gradient_steps,
        learning_starts=learning_starts,
        batch_size=2,
        buffer_size=100,
    )
    env_steps = 0
    for progress in loop:
        assert env_steps < progress.env_steps <= total
        env_steps = progress.env_steps
        assert progress.updates == learner.updates
    assert env_steps == total // num_envs * num_envs
    expected = slow_updates(num_envs, train_frequency, gradient_steps, learning_starts, total)
    assert learner.updated_at == expected
    assert loop.round() is None and learner.updated_at == expected


def test_counts_done_by_hand() -> None:
    assert slow_updates(1, 4, 1, 0, 12) == [4, 8, 12]
    assert slow_updates(1, 4, -1, 10, 20) == [13] * 4 + [17] * 4
    assert slow_updates(4, 1, 1, 8, 16) == [8] * 4 + [12] * 4 + [16] * 4


@pytest.mark.parametrize("num_envs", [1, 2, 4])
@pytest.mark.parametrize("train_frequency", [1, 4])
def test_minus_one_is_one_update_per_env_step(num_envs: int, train_frequency: int) -> None:
    loop, learner = recording_loop(
        probe_vector_env(DelayedRewardProbe, num_envs),
        total_timesteps=40,
        learning_starts=0,
        gradient_steps=-1,
        train_frequency=train_frequency,
    )
    for progress in loop:
        if progress.env_steps % train_frequency == 0:
            assert progress.updates == progress.env_steps
        assert len(progress.results) == learner.updated_at.count(progress.env_steps)
    assert learner.updates == 40


@pytest.mark.parametrize("num_envs", [1, 3])
def test_next_step_resets_are_no_env_steps_and_no_transitions(num_envs: int) -> None:
    envs = probe_vector_env(AutoresetCanaryProbe, num_envs, length=3, autoreset_mode=AutoresetMode.NEXT_STEP)
    loop, learner = recording_loop(
        envs, total_timesteps=31, learning_starts=0, train_frequency=1, batch_size=16, buffer_size=100
    )
    previous = 0
    for progress in loop:
        assert progress.env_steps <= 31 and len(loop.buffer) == progress.env_steps
        assert len(progress.results) == progress.env_steps - previous
        previous = progress.env_steps
    assert previous > 31 - num_envs
    for batch in learner.batches:
        assert (batch.obs > 0).all() and (batch.next_obs != 1).all()


def test_the_last_round_and_the_step_count_are_part_of_the_state() -> None:
    probe = probe_vector_env(DelayedRewardProbe, 1)
    arguments = {"total_timesteps": 20, "learning_starts": 0, "train_frequency": 4}
    loop, learner = recording_loop(probe, **arguments)
    for progress in loop:
        if progress.env_steps == 6:
            break
    other, other_learner = recording_loop(probe, **arguments)
    other.load_state_dict(loop.state_dict())
    other.buffer.import_rows(0, loop.buffer.export_rows(0, 6))
    for _ in other:
        pass
    assert (learner.updated_at, other_learner.updated_at) == ([4], [8, 12, 16, 20])


# --- warm-up ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_envs", "random_steps"), [(1, 10), (4, 12)])
def test_exactly_the_first_learning_starts_actions_are_random(num_envs: int, random_steps: int) -> None:
    """Vector steps are whole: with four envs, the one that passes ten env steps still is random."""
    loop, learner = recording_loop(
        probe_vector_env(DelayedRewardProbe, num_envs), total_timesteps=40, learning_starts=10
    )
    for _ in loop:
        pass
    assert learner.acted_at == list(range(random_steps, 40, num_envs))


def last_layer(model: Any) -> Any:
    """The linear layer that makes actions, before their tanh."""
    network = model.network if hasattr(model, "network") else model.policy_network
    return [layer for layer in network if hasattr(layer, "bias")][-1]


@pytest.mark.parametrize("algo", ["ddpg", "d4pg", "td3", "sac", "naf", "mpo", "tqc", "crossq", "redq", "droq"])
def test_warm_up_actions_are_uniform_whatever_the_policy(algo: str) -> None:
    loop = make_loop(
        algo,
        probe_vector_env(ContinuousBanditProbe, 4),
        total_timesteps=2001,
        learning_starts=2000,
        train_frequency=10_000,
    )
    with torch.no_grad():
        last_layer(loop.learner.model).bias += 3.0
    for _ in loop:
        pass
    stored = loop.buffer.export_rows(0, 500)["actions"]
    assert kolmogorov_distance(stored, -1.0, 1.0) < kolmogorov_limit(2000)
    # Reward is -(a - 2.5) ** 2 of the action the env got: the whole of its range [0, 3] was tried.
    rewards = loop.buffer.export_rows(0, 500)["rewards"]
    np.testing.assert_allclose(rewards, -((1.5 + 1.5 * stored[..., 0] - 2.5) ** 2), atol=1e-5)


def test_discrete_warm_up_actions_are_uniform() -> None:
    loop, _ = recording_loop(probe_vector_env(ConstantRewardProbe, 4), total_timesteps=2001, learning_starts=2000)
    for _ in loop:
        pass
    assert loop.buffer.export_rows(0, 500)["actions"].mean() == pytest.approx(0.5, abs=0.037)


def test_warm_up_draws_from_a_stream_of_its_own() -> None:
    """Otherwise a longer warm-up would shift the exploration after it."""
    loop = make_loop("sac", probe_vector_env(ContinuousBanditProbe, 2), total_timesteps=60, learning_starts=50)
    for _ in range(10):
        loop.round()
    assert set(loop.streams.state_dict()["generators"]) == {"warm_up"}


def test_warm_up_actions_are_held_as_long_as_asked_and_drawn_anew_after_a_restart() -> None:
    envs = probe_vector_env(ContinuousBanditProbe, 2)
    loop = make_loop("sac", envs, total_timesteps=60, learning_starts=50, train_frequency=1000, warm_up_repeat=4)
    for _ in range(6):
        loop.round()
    loop.restart_envs()
    for _ in range(4):
        loop.round()
    actions = loop.buffer.export_rows(0, 10)["actions"][..., 0]
    pieces = [actions[:4], actions[4:6], actions[6:10]]
    assert all((piece == piece[0]).all() for piece in pieces)
    assert len({piece[0].tobytes() for piece in pieces}) == 3 and (actions[0] != actions[0][::-1]).all()


@pytest.mark.parametrize("algo", ["ddpg", "d4pg", "td3", "naf"])
def test_noise_is_on_the_policy_scale_and_stored_actions_stay_in_it(algo: str) -> None:
    """Bounds [0, 3]: deviation 0.1 of the policy is 0.15 of the env, around the action that the policy means."""
    loop = make_loop(
        algo,
        probe_vector_env(ContinuousBanditProbe, 4),
        total_timesteps=2000,
        learning_starts=0,
        train_frequency=10_000,
        exploration_noise=0.1,
    )
    with torch.no_grad():
        last_layer(loop.learner.model).bias.fill_(0.5)
    for _ in loop:
        pass
    stored = loop.buffer.export_rows(0, 500)["actions"]
    assert stored.min() >= -1 and stored.max() <= 1
    assert stored.mean() == pytest.approx(np.tanh(0.5), abs=0.01)
    assert stored.std() == pytest.approx(0.1, rel=0.05)
    rewards = loop.buffer.export_rows(0, 500)["rewards"]
    np.testing.assert_allclose(rewards, -((1.5 + 1.5 * stored[..., 0] - 2.5) ** 2), atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_correlated_noise_starts_anew_with_every_episode(mode: AutoresetMode) -> None:
    """Episodes of five steps, seen many times: the noise spreads from its first deviation, episode by episode."""
    envs = probe_vector_env(DelayedRewardProbe, 10, length=5, continuous=True, autoreset_mode=mode)
    loop = make_loop(
        "ddpg",
        envs,
        total_timesteps=10_000,
        learning_starts=0,
        train_frequency=100_000,
        exploration_noise=0.05,
        noise_type="ou",
    )
    with torch.no_grad():
        for layer in (0, 2, 4):
            loop.learner.model.policy_network[layer].weight.zero_()
    for _ in loop:
        pass
    rows = loop.buffer.export_rows(0, loop.buffer.rows_written)
    for step in range(5):
        here = rows["valid"] & (rows["obs"][..., 0] == step)
        expected = 0.05 * np.sqrt(sum(0.85 ** (2 * k) for k in range(step + 1)))
        assert rows["actions"][here].std() == pytest.approx(expected, rel=0.08)


# --- schedules and settings reach their places -------------------------------------------------------------------


def test_the_learner_knows_the_env_step_it_acts_and_updates_at() -> None:
    loop, learner = recording_loop(
        probe_vector_env(DelayedRewardProbe, 2), total_timesteps=12, learning_starts=0, train_frequency=2
    )
    for _ in loop:
        pass
    assert learner.acted_at == [0, 2, 4, 6, 8, 10]
    assert learner.updated_at == [2, 4, 6, 8, 10, 12]


def test_batches_have_the_configured_size_and_come_from_the_replay_stream() -> None:
    runs = []
    for _ in range(2):
        loop, learner = recording_loop(
            probe_vector_env(DelayedRewardProbe, 1), total_timesteps=20, learning_starts=10, batch_size=7
        )
        for _ in loop:
            pass
        runs.append([batch.indices for batch in learner.batches])
        assert all(len(batch) == 7 for batch in learner.batches)
        assert "replay" in loop.streams.state_dict()["generators"]
    np.testing.assert_array_equal(runs[0], runs[1])


def test_the_buffer_has_the_configured_capacity_discount_and_window() -> None:
    loop, _ = recording_loop(
        probe_vector_env(DelayedRewardProbe, 2),
        total_timesteps=40,
        buffer_size=36,
        n_step=3,
        gamma=0.8,
        learning_starts=1,
    )
    assert (loop.buffer.capacity, loop.buffer.num_envs) == (36, 2)
    assert (loop.buffer.gamma, loop.buffer.n_step) == (0.8, 3)
    assert loop.buffer.export_rows(0, 0)["actions"].dtype == np.int64
    box, _ = recording_loop(probe_vector_env(ContinuousBanditProbe, 1), total_timesteps=200)
    assert box.buffer.export_rows(0, 0)["actions"].dtype == np.float32
