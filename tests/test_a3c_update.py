"""A3C: its gradient against a slow formula and A2C's recorded update; pushes, their lag, and what actors keep.

The loss is `a2c_loss`, which tests/test_a2c_update.py compares with rlax and a slow loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fleet_helpers import assert_same_but_for_the_fleet, plain_lines, run
from on_policy_helpers import (
    learner_of_case,
    make_learner,
    make_rollout,
    oracle_cases,
    parameters_of,
    rollout_of_case,
    shaped,
    slow_advantages,
    value_of,
)
from rl_training import load_config
from rl_training.data.gradient_push import Push
from rl_training.errors import ConfigError, NumericalError
from rl_training.runtime.fleet.gradient_maker import GradientMaker
from rl_training.runtime.fleet.stale_loops import AsyncGradientLoop, GradientLoop
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import resume
from rl_training.storage.checkpoints import latest_checkpoint
from rl_training.storage.state_tree import state_hash
from run_cases import Case, assert_same_run, different_parts, saved_state, stop_at

CASE = Case(
    "a3c",
    "Pendulum-v1",
    num_envs=4,
    model={"normalize_observations": True},
    settings={"normalize_rewards": True, "optimizer": "adam", "num_steps": 5, "entropy_coef": {"start": 0.1, "end": 0}},
    options={"env_kwargs": {"max_episode_steps": 15}},
)


@contextlib.contextmanager
def a3c_loop(mode: str = "lockstep", *, actors: int = 4, total: int = 200, **changes: Any) -> Iterator[GradientLoop]:
    runtime = {"actors": actors, "mode": mode, "backend": changes.pop("backend", "inline")}
    base = {"algo": "a3c", "env_id": "CartPole-v1", "num_envs": 4, "total_timesteps": total, "checkpoint_every": 0}
    config = load_config({**base, "runtime": runtime, "model": {"hidden_sizes": [8]}, **changes})
    with open_loop(config, None, None, StopSignals()) as loop:
        assert isinstance(loop, GradientLoop)
        yield loop


# The gradient.


def test_the_gradient_is_that_of_the_papers_sums() -> None:
    """d theta = -(grad log pi(a|s) (R - V(s)) + beta grad H) + c_v (V(s) - R) grad V(s), averaged over the rows."""
    learner = make_learner("a3c", gamma=0.9, gae_lambda=1.0, entropy_coef=0.02, value_coef=0.7)
    rollout = make_rollout(learner, 6, 1)
    vector, _ = learner.gradient(rollout)
    advantages = slow_advantages(rollout, rollout.rewards, value_of(learner.model), 0.9, 1.0)
    parameters = list(learner.model.parameters())
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    rows = np.argwhere(rollout.valid)
    for t, env in rows:
        obs = torch.from_numpy(rollout.obs[t, env][None])
        action = torch.from_numpy(rollout.actions[t, env][None])
        advantage = float(advantages[t, env])
        log_prob, entropy, value = learner.model.evaluate_actions(obs, action)
        target = float(value.detach()) + advantage
        loss = -log_prob * advantage - 0.02 * entropy + 0.7 * 0.5 * (value - target) ** 2
        for sum_, part in zip(expected, torch.autograd.grad(loss.sum(), parameters), strict=True):
            sum_ += part / len(rows)
    torch.testing.assert_close(vector, torch.cat([part.reshape(-1) for part in expected]), atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_one_pushed_gradient_gives_the_weights_of_stable_baselines3s_a2c(kind: str) -> None:
    [(inputs, outputs)] = [c for c in oracle_cases("on_policy_update", "A2C") if c[0]["action_kind"] == kind]
    learner = learner_of_case({**inputs, "algo": "a3c"})
    rollout = rollout_of_case(inputs)
    push, _ = GradientMaker(learner, rollout.rewards.shape[1]).push(rollout, None)
    learner.update(push)
    for name, parameter in learner.model.named_parameters():
        np.testing.assert_allclose(parameter.detach(), outputs["parameters"][name], atol=1e-5, err_msg=name)


def test_a_gradient_changes_nothing_and_an_update_only_applies_it() -> None:
    learner = make_learner("a3c", normalize_rewards=True, model={"normalize_observations": True})
    before = state_hash(learner.state_dict())
    rollout = make_rollout(learner, 8, 1)
    drawn = state_hash(learner.state_dict())  # collecting draws numbers
    vector, metrics = learner.gradient(rollout)
    assert state_hash(learner.state_dict()) == drawn != before
    assert not vector.requires_grad and not any(value.requires_grad for value in metrics.values())
    other = make_learner("a3c", learning_rate=0.1, max_grad_norm=None, optimizer="adam")
    start = parameters_of(other.model)
    push = Push(np.ones(len(start), np.float32), {}, rollout.rewards, rollout.valid, 0.0, None)
    result = other.update(push)
    torch.testing.assert_close(parameters_of(other.model), start - 0.1)  # the first step of Adam
    assert float(result["grad_norm"]) == pytest.approx(np.sqrt(len(start)))
    assert other.updates == 1


def test_schedules_reach_the_gradient_and_the_step() -> None:
    """Halfway through the run both have half their value."""
    falling: Any = {"learning_rate": {"start": 0.2, "end": 0.0}, "entropy_coef": {"start": 0.4, "end": 0.0}}
    half: Any = {"learning_rate": 0.1, "entropy_coef": 0.2}
    learners = [make_learner("a3c", optimizer="adam", max_grad_norm=None, **settings) for settings in (falling, half)]
    rollout = make_rollout(learners[0], 6, 1)
    gradients = []
    for learner in learners:
        learner.clock.env_steps = learner.total_timesteps // 2
        gradients.append(learner.gradient(rollout)[0])
        start = parameters_of(learner.model)
        ones = np.ones(len(start), np.float32)
        learner.update(Push(ones, {}, rollout.rewards, rollout.valid, 0.0, None))
        torch.testing.assert_close(parameters_of(learner.model), start - 0.1)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_truncated_episode_bootstraps_and_a_terminated_one_does_not() -> None:
    learner = make_learner("a3c", gamma=0.9, num_envs=1)
    rollout = make_rollout(learner, 4, 3)
    gradients = []
    for terminated in (True, False):
        ends = np.zeros_like(rollout.terminated)
        ends[-1] = True
        none = np.zeros_like(ends)
        last = (np.array([3]), np.array([0]), rollout.last_obs[:1])
        gradients.append(
            learner.gradient(
                replace(
                    rollout,
                    terminated=ends if terminated else none,
                    truncated=none if terminated else ends,
                    final_steps=last[0][:0] if terminated else last[0],
                    final_envs=last[1][:0] if terminated else last[1],
                    final_obs=last[2][:0] if terminated else last[2],
                )
            )[0]
        )
    running = learner.gradient(
        replace(
            rollout,
            terminated=np.zeros_like(rollout.terminated),
            truncated=np.zeros_like(rollout.truncated),
            final_steps=rollout.final_steps[:0],
            final_envs=rollout.final_envs[:0],
            final_obs=rollout.final_obs[:0],
        )
    )[0]
    torch.testing.assert_close(gradients[1], running)
    assert not torch.allclose(gradients[0], gradients[1])


# One actor is A2C, and four are the same wherever they run.


def without_probe(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A3C looks for dead units before a step, A2C after it."""
    return [{name: value for name, value in line.items() if name != "dead_units"} for line in lines]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_one_actor_is_a2c_bit_for_bit(backend: str, tmp_path: Path) -> None:
    a2c = run(replace(CASE, algo="a2c"), tmp_path / "a2c")
    a3c = run(CASE, tmp_path / "a3c", backend=backend, mode="lockstep")
    assert without_probe(plain_lines(a2c.run_dir)) == without_probe(plain_lines(a3c.run_dir))
    states = [saved_state(latest_checkpoint(result.run_dir).path) for result in (a2c, a3c)]
    for state in states:
        state["loop"].pop("fleet", None)
    assert state_hash(states[0]) == state_hash(states[1]), list(different_parts(*states))


def test_four_actors_in_processes_equal_four_in_one_process_and_a_resumed_run_equals_both(tmp_path: Path) -> None:
    inline = run(CASE, tmp_path / "inline", actors=4, backend="inline", mode="lockstep")
    processes = run(CASE, tmp_path / "process", actors=4, backend="process", mode="lockstep")
    assert_same_run(inline.run_dir, processes.run_dir)
    half = run(CASE, tmp_path / "half", stop_at(CASE.steps // 2), actors=4, backend="inline", mode="lockstep")
    saved = saved_state(half.checkpoint)["loop"]["fleet"]["returns"]
    assert len({state["variance"] for state in saved.values()}) == 4  # each actor has statistics of its own
    resumed = resume(half.run_dir, overrides={"runtime.backend": "process"}, show=False)
    assert_same_run(inline.run_dir, resumed.run_dir)


def test_a_plain_run_and_one_actor_continue_each_other(tmp_path: Path) -> None:
    plain = run(CASE, tmp_path / "plain")
    half = run(CASE, tmp_path / "half", stop_at(CASE.steps // 2), backend="process", mode="lockstep")
    resumed = resume(half.run_dir, overrides={"runtime.backend": "inline"}, show=False)
    assert_same_but_for_the_fleet(plain.run_dir, resumed.run_dir)


# Lag, statistics and the account.


def test_push_k_of_a_round_is_k_updates_old_and_is_applied_in_the_order_of_the_actors() -> None:
    with a3c_loop() as loop:
        applied: list[tuple[int, int]] = []
        apply = loop.apply
        loop.apply = lambda push: (applied.append((push.actor, loop.collector.lag(push))), apply(push))[1]  # type: ignore
        for progress in loop:
            line = loop.figures()
            assert (line["lag_mean"], line["lag_max"]) == (1.5, 3)
            assert line["env_steps_learned"] == line["env_steps_granted"] == progress.env_steps
            assert len(progress.results) == 4
    assert applied == [(0, 0), (1, 1), (2, 2), (3, 3)] * 10
    assert loop.learner.updates == 40


def test_the_clock_and_the_learning_rate_move_with_every_push() -> None:
    with a3c_loop(algo_kwargs={"learning_rate": {"start": 1.0, "end": 0.0}, "num_steps": 5}) as loop:
        progress = loop.round()
    assert progress is not None
    rates = [float(result["learning_rate"]) for result in progress.results]
    assert rates == pytest.approx([1 - 5 * k / 200 for k in range(4)])


def test_statistics_of_observations_are_those_of_all_pushes() -> None:
    with a3c_loop(model={"hidden_sizes": [8], "normalize_observations": True}, total=100) as loop:
        seen: list[np.ndarray] = []
        for actor in loop.collector.fleet._actors:  # type: ignore[attr-defined]
            maker, push = actor._gradients, actor._gradients.push

            def watched(rollout: Any, returns: Any, push: Any = push) -> Any:
                seen.append(rollout.obs[rollout.valid].astype(np.float64))
                return push(rollout, returns)

            maker.push = watched
        for _ in loop:
            pass
        normalizer = loop.learner.model.normalizer
    rows = np.concatenate(seen)
    assert float(normalizer.count) == len(rows) == 100
    np.testing.assert_allclose(normalizer.mean, rows.mean(0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(normalizer.variance, rows.var(0), rtol=1e-10)


@pytest.mark.parametrize("total", [200, 207, 191])
def test_async_applies_every_push_once_within_the_budget(total: int) -> None:
    with a3c_loop("async", total=total, backend="process") as loop:
        assert isinstance(loop, AsyncGradientLoop) and not loop.is_exact
        for _ in loop:
            line = loop.figures()
            parts = ("learned", "stale", "lost", "in_flight")
            assert line["env_steps_granted"] == sum(line[f"env_steps_{name}"] for name in parts) <= total
            assert line["env_steps_learned"] + line["env_steps_stale"] == loop.env_steps
        assert loop.is_over and line["env_steps_in_flight"] == 0
        assert total - loop.env_steps < 5


def test_a_push_older_than_max_lag_is_counted_and_not_applied() -> None:
    with a3c_loop("async", actors=2) as loop:
        assert isinstance(loop, AsyncGradientLoop)
        loop.collector.max_lag = 0  # two actors in turn: each push is one update old, but for the first
        for _ in loop:
            line = loop.figures()
        assert line["env_steps_stale"] > 0 < line["env_steps_learned"]
        assert loop.env_steps == 200
        assert loop.learner.updates * 10 == line["env_steps_learned"]


def test_the_default_of_max_lag_leaves_room_for_the_lag_that_many_actors_have() -> None:
    for actors, expected in ((4, 20), (64, 128)):
        runtime = {"actors": actors, "mode": "async"}
        config = load_config({"algo": "a3c", "env_id": "CartPole-v1", "num_envs": 64, "runtime": runtime})
        assert config.runtime.resolved("a3c").max_lag == expected


def test_pipelined_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("a3c/cartpole", {"runtime.mode": "pipelined"})
    assert str(refused.value) == (
        "runtime.mode: a3c has no correction for stale rollouts and cannot use pipelined; use mode lockstep or async, "
        "or impala or appo"
    )


@pytest.mark.parametrize("normalized", [False, True])
def test_an_actor_shapes_the_rewards_that_it_learns_from_and_sends_them_as_they_were(normalized: bool) -> None:
    learner = make_learner("a3c", reward_scale=0.5, reward_clip=0.75, normalize_rewards=normalized)
    rollout = make_rollout(learner, 8, 1)
    raw = rollout.rewards.copy()
    push, _ = GradientMaker(learner, raw.shape[1]).push(rollout, None)
    seen = shaped(learner, rollout)  # the loop of A2C does this
    assert np.abs(learner.shape_rewards(raw)).max() == 0.75 < 0.5 * np.abs(raw).max()
    np.testing.assert_array_equal(push.gradient, learner.gradient(seen)[0])
    np.testing.assert_array_equal(push.rewards, raw)
    assert push.reward_max == pytest.approx(float(np.abs(seen.rewards).max()))


def test_a_rollout_without_a_valid_row_pushes_no_gradient() -> None:
    learner = make_learner("a3c", normalize_rewards=True)
    rollout = make_rollout(learner, 4, 1)
    empty = replace(rollout, valid=np.zeros_like(rollout.valid))
    push, returns = GradientMaker(learner, rollout.rewards.shape[1]).push(empty, None)
    assert push.gradient is None and push.moments is None
    assert returns is not None and returns["count"] == 0


def test_a_gradient_that_is_not_finite_ends_the_run_with_its_numbers() -> None:
    with a3c_loop() as loop:
        actor = loop.collector.fleet._actors[2]  # type: ignore[attr-defined]
        gradient = actor._learner.gradient

        def broken(rollout: Any) -> tuple[Tensor, Any]:
            vector, metrics = gradient(rollout)
            return vector * float("nan"), metrics

        actor._learner.gradient = broken
        with pytest.raises(NumericalError, match="grad_norm is nan"):
            loop.round()
