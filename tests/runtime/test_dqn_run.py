"""DQN in a run: when its target network moves, how epsilon falls, and where targets bootstrap."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from replay_helpers import (
    DISCRETE,
    make_batch,
    make_learner,
    make_loop,
    snapshot,
)
from rl_training.algorithms import dqn as dqn_module
from rl_training.algorithms.common import replay_learner
from rl_training.algorithms.dqn import dqn_loss
from rl_training.envs.probes import TimeLimitRingProbe, probe_vector_env

# --- the target network in a run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_envs", "train_frequency", "gradient_steps", "every", "copies_at"),
    [
        (1, 1, 1, 7, {7, 14, 21, 28}),
        (1, 4, 1, 8, {8, 16, 24}),
        (1, 4, 1, 10, {12, 20}),  # due at 10, 20 and 30; the online network only changes at multiples of four
        (4, 4, 1, 8, {8, 16, 24}),
        (4, 1, 2, 12, {12, 24}),
    ],
)
def test_a_hard_target_changes_exactly_at_the_configured_env_steps(
    num_envs: int, train_frequency: int, gradient_steps: int, every: int, copies_at: set[int]
) -> None:
    loop = make_loop(
        "dqn",
        probe_vector_env(TimeLimitRingProbe, num_envs, length=4),
        total_timesteps=31,
        learning_starts=0,
        train_frequency=train_frequency,
        gradient_steps=gradient_steps,
        target_update_every=every,
        learning_rate=1e-2,
    )
    learner: Any = loop.learner
    changed = set()
    before = snapshot(learner.target.module)
    torch.testing.assert_close(before, snapshot(learner.model), rtol=0, atol=0)
    for progress in loop:
        after = snapshot(learner.target.module)
        if not torch.equal(before, after):
            changed.add(progress.env_steps)
            if gradient_steps == 1:
                torch.testing.assert_close(after, snapshot(learner.model), rtol=0, atol=0)
        before = after
    assert changed == copies_at


def test_copies_missed_during_warm_up_are_not_made_up_for() -> None:
    """Three periods pass before learning starts: one copy then, and after it one each period as ever."""
    learner = make_learner("dqn", DISCRETE, target_update_every=5, learning_rate=1e-2)
    changed = []
    for env_steps in range(17, 31):
        learner.clock.env_steps = env_steps
        before = snapshot(learner.target.module)
        learner.update(make_batch(DISCRETE, 8, env_steps))
        if not torch.equal(before, snapshot(learner.target.module)):
            changed.append(env_steps)
    assert changed == [17, 20, 25, 30]


def test_a_soft_target_moves_at_every_update_and_never_by_a_hard_copy() -> None:
    learner = make_learner("dqn", DISCRETE, tau=0.25, target_update_every=1, learning_rate=1e-2)
    for number in range(4):
        learner.clock.env_steps = number + 1
        before = snapshot(learner.target.module)
        learner.update(make_batch(DISCRETE, 8, number))
        expected = 0.75 * before + 0.25 * snapshot(learner.model)
        torch.testing.assert_close(snapshot(learner.target.module), expected, rtol=1e-6, atol=1e-6)
        assert not torch.equal(before, expected)


def test_copies_already_made_are_part_of_the_state() -> None:
    learner, other = (make_learner("dqn", DISCRETE, target_update_every=10) for _ in range(2))
    learner.clock.env_steps = 10
    learner.update(make_batch(DISCRETE, 8, 0))
    other.load_state_dict(learner.state_dict())
    other.clock.env_steps = 11
    other.update(make_batch(DISCRETE, 8, 1))
    torch.testing.assert_close(snapshot(other.target.module), snapshot(learner.target.module), rtol=0, atol=0)


def test_the_target_network_normalises_by_the_newest_statistics() -> None:
    learner = make_learner("dqn", DISCRETE, model={"normalize_observations": True}, target_update_every=1000)
    obs = make_batch(DISCRETE, 50, 1).obs
    learner.observe(100.0 + 20.0 * obs.numpy())
    raw = 100.0 + 20.0 * obs
    torch.testing.assert_close(learner.target.module.q_values(raw), learner.model.q_values(raw))


# --- exploration in a run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("over", [None, 20])
def test_epsilon_follows_its_closed_form_in_env_steps(
    num_envs: int, over: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float] = []

    def spy(greedy: Any, obs: np.ndarray, num_actions: int, epsilon: float, *others: Any) -> np.ndarray:
        used.append(epsilon)
        actions: np.ndarray = greedy(obs)
        assert num_actions == 2 and actions.shape == (num_envs,)
        return actions

    monkeypatch.setattr(replay_learner, "epsilon_greedy", spy)
    loop = make_loop(
        "dqn",
        probe_vector_env(TimeLimitRingProbe, num_envs, length=4),
        total_timesteps=40,
        learning_starts=0,
        train_frequency=100,
        exploration={"start": 1.0, "end": 0.1, "over": over},
    )
    for _ in loop:
        pass
    steps = np.arange(0, 40, num_envs)
    np.testing.assert_allclose(used, 1.0 - 0.9 * np.minimum(1.0, steps / (over or 40)), rtol=1e-12)


def test_greedy_actions_are_the_argmax_and_draw_no_numbers() -> None:
    learner = make_learner("dqn", DISCRETE, dueling=True)
    obs = make_batch(DISCRETE, 50, 0).obs
    before = copy.deepcopy(learner.streams.state_dict())
    actions = learner.act(obs.numpy(), explore=False).actions
    np.testing.assert_array_equal(actions, learner.model.q_values(obs).argmax(1).numpy())
    assert learner.streams.state_dict() == before


@pytest.mark.parametrize("algo", ["dqn", "c51"])
def test_exploring_acts_mix_greedy_and_random_by_the_scheduled_epsilon(algo: str) -> None:
    learner = make_learner(algo, DISCRETE, exploration={"start": 0.8, "end": 0.0, "over": 100})
    obs = np.tile(np.array([[0.5, -1.0, 2.0]], np.float32), (8000, 1))
    greedy = learner.act(obs, explore=False).actions
    for env_steps, epsilon in ((0, 0.8), (50, 0.4), (100, 0.0), (500, 0.0)):
        learner.clock.env_steps = env_steps
        chosen = learner.act(obs, explore=True).actions
        assert np.mean(chosen != greedy) == pytest.approx(epsilon * 3 / 4, abs=0.02)


@pytest.mark.parametrize("terminal", [False, True])
def test_truncation_bootstraps_and_termination_does_not_in_the_targets_of_a_run(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A one-step ring ends at every step; its target is 1, or 1 + 0.9 * Q' when only the time was up."""
    seen: list[Tensor] = []

    def spy(q: Tensor, target: Tensor, weights: Tensor | None = None) -> Any:
        seen.append(target)
        return dqn_loss(q, target, weights)

    monkeypatch.setattr(dqn_module, "dqn_loss", spy)
    envs = probe_vector_env(partial(TimeLimitRingProbe, 1), 1, terminal=terminal)
    loop = make_loop("dqn", envs, total_timesteps=5, learning_starts=0, train_frequency=1, gamma=0.9, batch_size=4)
    with torch.no_grad():
        best = loop.learner.target.module.q_values(torch.ones(1, 1)).max()
    for _ in loop:
        pass
    expected = torch.ones(4) if terminal else (1 + 0.9 * best).expand(4)
    assert len(seen) == 5
    for target in seen:
        torch.testing.assert_close(target, expected)
