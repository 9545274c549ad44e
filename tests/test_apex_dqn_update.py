"""Ape-X DQN: its update against DQN's, its priorities and its ladder against slow formulas.

The loss is `dqn_loss` and the target `dqn_target`; tests/test_dqn_update.py compares both with other libraries.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fleet_helpers import run
from replay_helpers import DISCRETE, make_batch, make_learner
from rl_training import load_config
from rl_training.algorithms.common.exploration import exploration_ladder
from rl_training.data.transitions import Transitions
from rl_training.errors import ConfigError
from rl_training.storage.checkpoints import latest_checkpoint
from rl_training.storage.state_tree import state_hash
from run_cases import CASES, different_parts, saved_state

PARTS: dict[str, Any] = {"double": True, "dueling": True, "n_step": 3, "prioritized": True, "max_grad_norm": 40.0}


def learners(**settings: Any) -> tuple[Any, Any]:
    """An Ape-X learner and a DQN learner with the same settings, which have the same weights."""
    return tuple(make_learner(algo, DISCRETE, **PARTS | settings) for algo in ("apex_dqn", "dqn"))  # type: ignore


@pytest.mark.parametrize("settings", [{}, {"double": False, "dueling": False}, {"tau": 0.1}])
def test_an_update_is_that_of_dqn_bit_for_bit(settings: dict[str, Any]) -> None:
    apex, dqn = learners(**settings)
    for seed in range(3):
        batch = make_batch(DISCRETE, 16, seed, weights=True, n_step=3)
        ours, theirs = apex.update(batch), dqn.update(batch)
        assert np.array_equal(ours.priorities, theirs.priorities)
        assert {name: float(value) for name, value in ours.items()} == {n: float(v) for n, v in theirs.items()}
    assert state_hash(apex.state_dict()) == state_hash(dqn.state_dict())


def test_priorities_are_the_errors_of_the_papers_formula_by_the_learners_own_network() -> None:
    """|sum_k gamma^k r + gamma^n max_a Q(s', a) - Q(s, a)|, row by row; a terminal state adds nothing."""
    apex, _ = learners()
    apex.update(make_batch(DISCRETE, 16, 0, n_step=3))  # the target network is another one now
    batch = make_batch(DISCRETE, 16, 1, n_step=3)
    before = state_hash(apex.state_dict())
    found = apex.priorities(batch)
    assert state_hash(apex.state_dict()) == before and not found.requires_grad
    for row in range(16):
        q = apex.model.q_values(batch.obs[row : row + 1])[0]
        best = max(apex.model.q_values(batch.next_obs[row : row + 1])[0].tolist())
        target = float(batch.rewards[row]) + float(batch.discounts[row]) * best
        assert float(found[row]) == pytest.approx(abs(target - float(q[batch.actions[row]].detach())), abs=1e-5)


def test_priorities_are_those_of_the_learner_when_its_target_is_its_own_network() -> None:
    apex, _ = learners()
    batch = make_batch(DISCRETE, 16, 1, n_step=3)
    priorities = apex.priorities(batch)  # a new learner's target is a copy of its network
    assert np.array_equal(priorities.numpy(), apex.update(batch).priorities)


def test_no_gradient_flows_into_the_target() -> None:
    apex, _ = learners(tau=0.5, learning_rate=0.1)
    before = [parameter.clone() for parameter in apex.target.module.parameters()]
    apex._gradient_step(make_batch(DISCRETE, 16, 1))
    assert all(torch.equal(a, b) for a, b in zip(before, apex.target.module.parameters(), strict=True))
    assert not any(parameter.requires_grad for parameter in apex.target.module.parameters())


def test_a_terminated_row_has_no_future_and_a_truncated_one_has() -> None:
    apex, _ = learners()
    batch = make_batch(DISCRETE, 2, 1)
    row = {name: getattr(batch, name)[:1].repeat(2, 1) for name in ("obs", "next_obs")}
    same = Transitions(**row, actions=torch.tensor([1, 1]), rewards=torch.ones(2), discounts=torch.tensor([0.0, 0.9]))
    q, best = (apex.model.q_values(row[name][:1]).detach() for name in ("obs", "next_obs"))
    expected = [abs(1.0 - float(q[0, 1])), abs(1.0 + 0.9 * float(best.max()) - float(q[0, 1]))]
    np.testing.assert_allclose(apex.priorities(same), expected, rtol=1e-5)


# The ladder.


@pytest.mark.parametrize("actors", [2, 3, 4, 256])
def test_the_ladder_is_that_of_the_paper(actors: int) -> None:
    ladder = exploration_ladder(actors)
    assert len(ladder) == actors
    for actor, epsilon in enumerate(ladder):
        assert epsilon == pytest.approx(0.4 ** (1 + actor / (actors - 1) * 7))
    assert ladder[0] == 0.4 and ladder[-1] == pytest.approx(0.4**8)
    assert ladder == sorted(ladder, reverse=True)


def apex_learner(actors: int, num_envs: int = 4, **settings: Any) -> Any:
    from rl_training.algorithms.common.streams import Streams
    from rl_training.runtime.spec import get_spec

    base = {"algo": "apex_dqn", "env_id": "Probe-v0", "num_envs": num_envs, "runtime": {"actors": actors}}
    config = load_config({**base, "algo_kwargs": settings, "total_timesteps": 1000})
    return get_spec("apex_dqn").learner(DISCRETE, config, Streams(0))


def test_each_actor_takes_random_actions_at_its_own_rate() -> None:
    obs = np.zeros((4000, 3), np.float32)
    shares = []
    for place in range(4):
        learner = apex_learner(4)
        learner.take_place(place)
        greedy = learner.act(obs[:1], explore=False).actions[0]
        shares.append(float(np.mean(learner.act(obs, explore=True).actions != greedy)))
    expected = [0.75 * epsilon for epsilon in exploration_ladder(4)]  # a random action may be the greedy one
    np.testing.assert_allclose(shares, expected, atol=0.03)
    assert shares == sorted(shares, reverse=True)


def test_the_ladder_has_the_base_and_the_exponent_of_the_settings() -> None:
    for place, epsilon in enumerate((0.5, 0.25, 0.125)):
        learner = apex_learner(3, num_envs=3, ladder_base=0.5, ladder_exponent=2.0)
        learner.take_place(place)
        assert learner.exploration_rate() == pytest.approx(epsilon)


def test_the_learner_reports_the_exploration_of_the_mean_actor() -> None:
    assert apex_learner(4).exploration_rate() == pytest.approx(sum(exploration_ladder(4)) / 4)


@pytest.mark.parametrize(("actors", "settings"), [(1, {}), (4, {"exploration_ladder": False})])
def test_without_a_ladder_exploration_follows_its_schedule(actors: int, settings: dict[str, Any]) -> None:
    learner = apex_learner(actors, exploration={"start": 1.0, "end": 0.0}, **settings)
    learner.take_place(0)
    learner.clock.env_steps = 250
    assert learner.exploration_rate() == pytest.approx(0.75)


# One actor in lockstep is DQN.


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_one_actor_in_lockstep_is_dqn_bit_for_bit(backend: str, tmp_path: Path) -> None:
    case = CASES["apex_dqn, native next-step envs, normalized"]
    apex_only = {"ticket_steps"}
    settings = PARTS | {"importance_exponent": 0.4} | case.settings
    dqn = replace(case, algo="dqn", settings={k: v for k, v in settings.items() if k not in apex_only})
    results = [run(dqn, tmp_path / "dqn"), run(case, tmp_path / "apex", backend=backend, mode="lockstep")]
    states = [saved_state(latest_checkpoint(result.run_dir).path) for result in results]
    for state in states:
        state["loop"].pop("fleet", None)
    assert state_hash(states[0]) == state_hash(states[1]), list(different_parts(*states))
    assert states[0]["learner"]["updates"] > 10


# Refusals.


@pytest.mark.parametrize(
    ("changes", "start", "way_out"),
    [
        ({"exploration_ladder": True}, "algo_kwargs.exploration_ladder: one actor makes no ladder", "runtime.actors=2"),
        ({"samples_per_insert": -1.0}, "algo_kwargs.samples_per_insert: -1.0 is not valid", "> 0"),
        ({"samples_per_insert": 8.0}, "algo_kwargs.samples_per_insert: one actor in lockstep", "train_frequency"),
        ({"samples_per_insert": None}, "algo_kwargs.samples_per_insert: null lets", "runtime.mode=async"),
        ({"ladder_base": 1.5}, "algo_kwargs.ladder_base: 1.5 is not valid", "< 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(changes: dict[str, Any], start: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"algo": "apex_dqn", "env_id": "CartPole-v1", "algo_kwargs": changes})
    message = str(refused.value)
    assert message.startswith(start) and way_out in message and "\n" not in message


@pytest.mark.parametrize(
    ("runtime", "start"),
    [
        ({"actors": 2, "mode": "pipelined"}, "runtime.mode: apex_dqn fills its replay buffer in lockstep or async"),
        ({"actors": 2, "mode": "async", "max_lag": 4}, "runtime.max_lag: apex_dqn learns from replay"),
    ],
)
def test_modes_that_replay_has_no_use_for_are_refused(runtime: dict[str, Any], start: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config({"algo": "apex_dqn", "env_id": "CartPole-v1", "num_envs": 2, "runtime": runtime})
    assert str(refused.value).startswith(start) and "\n" not in str(refused.value)


def test_a_plain_replay_algorithm_that_is_asked_for_async_names_ape_x() -> None:
    with pytest.raises(
        ConfigError, match=r"dqn fills .* cannot use async; use mode lockstep, or apex_dqn or apex_d4pg"
    ):
        load_config("dqn/cartpole", {"runtime.mode": "async"})


def test_goals_of_hindsight_are_refused_with_actors() -> None:
    with pytest.raises(ConfigError, match=r"algo_kwargs.hindsight: not available with actors"):
        load_config("apex_dqn/cartpole", {"algo_kwargs.hindsight": 0.8})
