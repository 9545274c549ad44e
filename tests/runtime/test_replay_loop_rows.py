"""What the replay loop stores and observes, and how priorities travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from replay_helpers import make_loop, recording_loop
from rl_training.data.transitions import Transitions
from rl_training.envs.probes import (
    AutoresetCanaryProbe,
    ContinuousBanditProbe,
    DelayedRewardProbe,
    TimeLimitRingProbe,
    probe_vector_env,
)

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


# --- what is stored ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_every_fresh_observation_is_observed_once_and_in_order(mode: AutoresetMode, num_envs: int) -> None:
    envs = probe_vector_env(AutoresetCanaryProbe, num_envs, length=3, autoreset_mode=mode)
    loop, learner = recording_loop(
        envs, total_timesteps=30, learning_starts=0, train_frequency=1, gradient_steps=3, buffer_size=100
    )
    for _ in loop:
        pass
    seen = np.concatenate(learner.observed)
    assert len(seen) == loop.env_steps
    # All envs walk in step: each observation 1, 2, 3 is seen by every env before the next, and -1 never.
    expected = np.resize(np.repeat([1.0, 2.0, 3.0], num_envs), loop.env_steps)
    np.testing.assert_array_equal(seen[:, 0], expected)


def test_the_statistics_of_a_run_count_each_env_step_once() -> None:
    envs = probe_vector_env(AutoresetCanaryProbe, 2, length=3)
    loop = make_loop(
        "dqn", envs, total_timesteps=30, learning_starts=4, train_frequency=1, model={"normalize_observations": True}
    )
    for _ in loop:
        pass
    normalizer: Any = loop.learner.model.normalizer
    assert normalizer.count == 30
    assert normalizer.mean.item() == pytest.approx(2.0)
    assert normalizer.variance.item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_step", [1, 2])
@pytest.mark.parametrize("truncate", [False, True])
def test_rewards_are_scaled_and_clipped_before_they_are_summed(
    mode: AutoresetMode, n_step: int, truncate: bool
) -> None:
    """Raw rewards 1, 2, 3; what is learned from is 0.5, 1, 1.2; the episode that is logged stays worth 6."""
    envs = probe_vector_env(AutoresetCanaryProbe, 2, length=3, truncate=truncate, autoreset_mode=mode)
    loop, learner = recording_loop(
        envs,
        total_timesteps=60,
        learning_starts=24,
        train_frequency=6,
        batch_size=64,
        buffer_size=100,
        gamma=0.9,
        n_step=n_step,
        reward_scale=0.5,
        reward_clip=1.2,
    )
    episodes = [episode for progress in loop for episode in progress.episodes]
    assert {(episode.total_reward, episode.length) for episode in episodes} == {(6.0, 3)}
    shaped = {1: 0.5, 2: 1.0, 3: 1.2}
    complete = 0
    for batch in learner.batches:
        for b in range(len(batch)):
            start = int(batch.obs[b])
            last = min(start + n_step - 1, 3)
            ends_here = int(batch.next_obs[b]) == (-1 if last == 3 else last + 1)
            # The newest row of a run has no successor yet: its window is shorter, and its discount says so.
            last = last if ends_here else start
            complete += ends_here
            expected = sum(0.9 ** (k - start) * shaped[k] for k in range(start, last + 1))
            discount = 0.0 if last == 3 and not truncate else 0.9 ** (last - start + 1)
            assert batch.rewards[b].item() == pytest.approx(expected, rel=1e-6)
            assert batch.discounts[b].item() == pytest.approx(discount, rel=1e-6)
    assert complete > 0.8 * 64 * len(learner.batches)


def test_only_the_clip_and_only_the_scale() -> None:
    for settings_, expected in (
        ({"reward_scale": 2.0}, [2.0, 4.0, 6.0]),
        ({"reward_clip": 1.5}, [1.0, 1.5, 1.5]),
        ({}, [1.0, 2.0, 3.0]),
    ):
        loop, _ = recording_loop(
            probe_vector_env(AutoresetCanaryProbe, 1, length=3), total_timesteps=3, learning_starts=2, **settings_
        )
        for _ in loop:
            pass
        np.testing.assert_array_equal(loop.buffer.export_rows(0, 3)["rewards"][:, 0], np.array(expected, np.float32))


def test_negative_rewards_are_clipped_too() -> None:
    envs = probe_vector_env(ContinuousBanditProbe, 1, target=100.0)
    loop, _ = recording_loop(envs, total_timesteps=3, learning_starts=2, reward_clip=0.5)
    for _ in loop:
        pass
    np.testing.assert_array_equal(loop.buffer.export_rows(0, 3)["rewards"], -0.5)


def test_a_barrier_lets_no_window_run_across_it() -> None:
    envs = probe_vector_env(TimeLimitRingProbe, 1, length=50)
    loop, _ = recording_loop(envs, total_timesteps=20, learning_starts=19, n_step=3, gamma=0.5, buffer_size=100)
    for progress in loop:
        if progress.env_steps == 10:
            loop.barrier()
    batch = loop.buffer.sample(500, np.random.default_rng(0))
    before = np.asarray(batch.indices) == 9
    assert before.any()
    assert (batch.rewards[before] == 1.0).all() and (batch.discounts[before] == 0.5).all()
    assert (batch.rewards[batch.indices == 8] == 1.5).all()
    assert (batch.rewards[batch.indices == 10] == 1.75).all()


# --- prioritized replay -----------------------------------------------------------------------------------------


def test_priorities_of_an_update_reach_the_rows_it_was_drawn_from() -> None:
    loop, learner = recording_loop(
        probe_vector_env(DelayedRewardProbe, 2),
        total_timesteps=40,
        learning_starts=20,
        train_frequency=2,
        batch_size=8,
        prioritized=True,
        priority_exponent=0.5,
        priority_epsilon=0.01,
    )
    for _ in loop:
        if not learner.batches:
            continue
        rows = np.asarray(learner.batches[-1].indices)
        held = loop.buffer.state_dict()["priorities"]
        for row in set(rows.tolist()):
            latest = np.flatnonzero(rows == row)[-1]
            assert held[row] == pytest.approx((latest / 7 + 0.01) ** 0.5, rel=1e-6)
    assert len(learner.batches) == 11


def test_a_learners_own_errors_become_priorities() -> None:
    loop = make_loop(
        "dqn",
        probe_vector_env(DelayedRewardProbe, 1),
        total_timesteps=30,
        learning_starts=20,
        train_frequency=1,
        prioritized=True,
        priority_exponent=1.0,
        priority_epsilon=1e-6,
        learning_rate=0.0,
        exploration=1.0,
    )
    for _ in loop:
        pass
    model: Any = loop.learner.model
    rows = loop.buffer.export_rows(0, 30)
    held = loop.buffer.state_dict()["priorities"]
    with torch.no_grad():
        q = model.q_values(torch.from_numpy(rows["obs"][:, 0]))
        next_q = model.q_values(torch.from_numpy(rows["next_obs"][:, 0])).amax(1)
    for row in range(25):
        y = rows["rewards"][row, 0] + (0.0 if rows["terminated"][row, 0] else 0.99) * next_q[row].item()
        error = abs(q[row, rows["actions"][row, 0]].item() - y)
        # A row that was never drawn still has the priority it came with.
        assert held[row] == pytest.approx(error + 1e-6, rel=1e-4) or held[row] >= 1.0
    assert (held[:25] < 1.0).sum() > 10


def test_importance_weights_are_absent_without_priorities() -> None:
    loop, learner = recording_loop(probe_vector_env(DelayedRewardProbe, 1), total_timesteps=20, learning_starts=4)
    for _ in loop:
        pass
    assert learner.batches and all(batch.weights is None for batch in learner.batches)


@pytest.mark.parametrize(
    ("settings", "over"),
    [({"importance_exponent": {"start": 0.4, "end": 1.0, "over": 32}}, 32), ({}, 40)],
    ids=["schedule", "default"],
)
@pytest.mark.parametrize("num_envs", [1, 4])
def test_the_importance_exponent_follows_its_schedule_in_env_steps(
    num_envs: int, settings: dict[str, Any], over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every update of a round has the exponent of the env step it happens at. By default it reaches 1 with the run."""
    loop, learner = recording_loop(
        probe_vector_env(DelayedRewardProbe, num_envs),
        total_timesteps=40,
        learning_starts=8,
        train_frequency=4,
        gradient_steps=2,
        prioritized=True,
        **settings,
    )
    used: list[float | None] = []
    original = loop.buffer.sample

    def spy(batch_size: int, rng: np.random.Generator, importance_exponent: float | None = None) -> Transitions:
        used.append(importance_exponent)
        return original(batch_size, rng, importance_exponent)

    monkeypatch.setattr(loop.buffer, "sample", spy)
    for _ in loop:
        pass
    expected = [0.4 + 0.6 * min(1.0, env_steps / over) for env_steps in learner.updated_at]
    assert len(used) >= 14
    np.testing.assert_allclose(np.array(used, float), expected, rtol=1e-12)
