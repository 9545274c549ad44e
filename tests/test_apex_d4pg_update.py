"""Ape-X with D4PG: its update against D4PG's, its priorities against a slow formula, the noise of its actors.

The loss is `d4pg_loss`; tests/test_d4pg_update.py compares it with other implementations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from replay_helpers import BOX, make_batch, make_learner
from rl_training import load_config
from rl_training.algorithms.common.streams import Streams
from rl_training.runtime.spec import get_spec
from rl_training.storage.state_tree import state_hash

SETTINGS: dict[str, Any] = {"num_atoms": 11, "support_low": -5.0, "support_high": 5.0, "prioritized": True}


def test_an_update_is_that_of_d4pg_bit_for_bit() -> None:
    apex, d4pg = (make_learner(algo, BOX, **SETTINGS) for algo in ("apex_d4pg", "d4pg"))
    for seed in range(3):
        batch = make_batch(BOX, 16, seed, weights=True, n_step=3)
        ours, theirs = apex.update(batch), d4pg.update(batch)
        assert np.array_equal(ours.priorities, theirs.priorities)
        assert {name: float(value) for name, value in ours.items()} == {n: float(v) for n, v in theirs.items()}
    assert state_hash(apex.state_dict()) == state_hash(d4pg.state_dict())


def slow_priority(model: Any, batch: Any, row: int) -> float:
    """KL(projection of r + d Z(s', mu(s')) || Z(s, a)), atom by atom."""
    atoms = [float(atom) for atom in model.support]
    step = atoms[1] - atoms[0]
    with torch.no_grad():
        obs, following = batch.obs[row : row + 1], batch.next_obs[row : row + 1]
        chances = model.distribution_logits(following, model.actor(following)).softmax(1)[0].tolist()
        own = model.distribution_logits(obs, batch.actions[row : row + 1]).log_softmax(1)[0].tolist()
    target = [0.0] * len(atoms)
    for atom, chance in zip(atoms, chances, strict=True):
        value = float(batch.rewards[row]) + float(batch.discounts[row]) * atom
        place = (min(max(value, atoms[0]), atoms[-1]) - atoms[0]) / step
        low = min(int(place), len(atoms) - 2)
        target[low] += chance * (low + 1 - place)
        target[low + 1] += chance * (place - low)
    return sum(m * (math.log(m) - q) for m, q in zip(target, own, strict=True) if m > 0)


def test_priorities_are_the_divergence_from_the_target_by_the_actors_own_networks() -> None:
    apex = make_learner("apex_d4pg", BOX, **SETTINGS)
    apex.update(make_batch(BOX, 16, 0, n_step=3))  # the targets are other networks now
    batch = make_batch(BOX, 8, 1, n_step=3)
    before = state_hash(apex.state_dict())
    found = apex.priorities(batch)
    assert state_hash(apex.state_dict()) == before and not found.requires_grad
    np.testing.assert_allclose(found, [slow_priority(apex.model, batch, row) for row in range(8)], atol=2e-4)


def test_weights_for_actors_include_the_critic() -> None:
    apex, other = (make_learner("apex_d4pg", BOX, seed=seed, **SETTINGS) for seed in (0, 1))
    other.adopt([array.copy() for array in apex.acting_state()])
    batch = make_batch(BOX, 8, 1)
    assert torch.equal(apex.priorities(batch), other.priorities(batch))


def apex_learner(actors: int, **settings: Any) -> Any:
    base = {"algo": "apex_d4pg", "env_id": "Probe-v0", "num_envs": 12, "runtime": {"actors": actors}}
    config = load_config({**base, "algo_kwargs": settings, "total_timesteps": 1000})
    return get_spec("apex_d4pg").learner(BOX, config, Streams(0))


def test_actor_i_of_n_has_noise_of_its_own_scale() -> None:
    obs = np.zeros((4000, 3), np.float32)
    for place in range(3):
        learner = apex_learner(3, exploration_noise=0.2)
        learner.take_place(place)
        noise = learner.act(obs, explore=True).actions - learner.act(obs[:1], explore=False).actions
        assert float(noise.std()) == pytest.approx(0.2 * 0.4 ** (7 * place / 2), rel=0.05)


@pytest.mark.parametrize(("actors", "settings"), [(1, {}), (3, {"exploration_ladder": False})])
def test_without_a_ladder_all_actors_have_the_noise_of_the_settings(actors: int, settings: dict[str, Any]) -> None:
    learner = apex_learner(actors, exploration_noise=0.2, **settings)
    learner.take_place(actors - 1)
    assert learner.noise.sigma == 0.2


def test_no_gradient_flows_into_the_targets() -> None:
    apex = make_learner("apex_d4pg", BOX, tau=1e-9, **SETTINGS)
    before = [parameter.clone() for parameter in apex.target.module.parameters()]
    apex.update(make_batch(BOX, 16, 1))
    for old, new in zip(before, apex.target.module.parameters(), strict=True):
        torch.testing.assert_close(old, new, atol=1e-6, rtol=0)
        assert not new.requires_grad
