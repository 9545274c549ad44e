"""Ape-X with TD3: its update against TD3's, its priorities against a slow formula, the weights that actors get.

The loss is `td3_loss`; tests/test_td3_update.py compares it with other implementations. The noise of the actors is that
of Ape-X with D4PG, in tests/test_apex_d4pg_update.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from replay_helpers import BOX, make_batch, make_learner
from rl_training import load_config
from rl_training.algorithms.common.streams import Streams
from rl_training.runtime.spec import get_spec
from rl_training.storage.state_tree import state_hash

SETTINGS: dict[str, Any] = {"prioritized": True, "policy_delay": 2, "n_step": 3}


def test_an_update_is_that_of_td3_bit_for_bit() -> None:
    """Three updates: the actor and the targets learn in the second."""
    apex, td3 = (make_learner(algo, BOX, **SETTINGS) for algo in ("apex_td3", "td3"))
    for seed in range(3):
        batch = make_batch(BOX, 16, seed, weights=True, n_step=3)
        ours, theirs = apex.update(batch), td3.update(batch)
        assert np.array_equal(ours.priorities, theirs.priorities)
        assert {name: float(value) for name, value in ours.items()} == {n: float(v) for n, v in theirs.items()}
    assert state_hash(apex.state_dict()) == state_hash(td3.state_dict())


def slow_priority(model: Any, batch: Any, row: int) -> float:
    """The mean over both critics of |r + d min(Q_1, Q_2)(s', mu(s')) - Q_i(s, a)|, with one row at a time."""
    with torch.no_grad():
        obs, following = batch.obs[row : row + 1], batch.next_obs[row : row + 1]
        next_values = model.q_values(following, model.actor(following))[:, 0].tolist()
        values = model.q_values(obs, batch.actions[row : row + 1])[:, 0].tolist()
    target = float(batch.rewards[row]) + float(batch.discounts[row]) * min(next_values)
    return sum(abs(target - value) for value in values) / len(values)


def test_priorities_are_the_error_by_the_actors_own_networks() -> None:
    apex = make_learner("apex_td3", BOX, **SETTINGS)
    for seed in range(2):
        apex.update(make_batch(BOX, 16, seed, n_step=3))  # the targets are other networks now
    batch = make_batch(BOX, 8, 2, n_step=3)
    before = state_hash(apex.state_dict())
    found = apex.priorities(batch)
    assert state_hash(apex.state_dict()) == before and not found.requires_grad
    np.testing.assert_allclose(found, [slow_priority(apex.model, batch, row) for row in range(8)], atol=1e-5)
    assert not np.allclose(found, [slow_priority(apex.target.module, batch, row) for row in range(8)], atol=1e-5)


def test_a_terminal_row_has_the_error_of_its_reward_alone() -> None:
    apex = make_learner("apex_td3", BOX, **SETTINGS)
    batch = make_batch(BOX, 8, 1)
    batch.discounts[:] = 0.0
    values = apex.model.q_values(batch.obs, batch.actions).detach()
    expected = (values - batch.rewards).abs().mean(0)
    torch.testing.assert_close(apex.priorities(batch), expected)


def test_weights_for_actors_include_the_critics() -> None:
    apex, other = (make_learner("apex_td3", BOX, seed=seed, **SETTINGS) for seed in (0, 1))
    other.adopt([array.copy() for array in apex.acting_state()])
    batch = make_batch(BOX, 8, 1)
    assert torch.equal(apex.priorities(batch), other.priorities(batch))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_actor_i_of_n_has_noise_of_its_own_scale(place: int) -> None:
    base = {"algo": "apex_td3", "env_id": "Probe-v0", "num_envs": 12, "runtime": {"actors": 3}}
    config = load_config({**base, "algo_kwargs": {"exploration_noise": 0.2}, "total_timesteps": 1000})
    learner = get_spec("apex_td3").learner(BOX, config, Streams(0))
    learner.take_place(place)
    assert learner.noise.sigma == pytest.approx(0.2 * 0.4 ** (7 * place / 2))


def test_no_gradient_flows_into_the_targets() -> None:
    apex = make_learner("apex_td3", BOX, tau=1e-9, **{**SETTINGS, "policy_delay": 1})
    before = [parameter.clone() for parameter in apex.target.module.parameters()]
    apex.update(make_batch(BOX, 16, 1))
    for old, new in zip(before, apex.target.module.parameters(), strict=True):
        torch.testing.assert_close(old, new, atol=1e-6, rtol=0)
        assert not new.requires_grad
