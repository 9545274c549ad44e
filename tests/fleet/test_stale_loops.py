"""Lag, back-pressure and the budget of the loops that learn from stale rollouts."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import load_config
from rl_training.runtime.fleet import fleet_setup
from rl_training.runtime.fleet.delivery import ActorFailure, Delivery
from rl_training.runtime.fleet.inline import InlineFleet
from rl_training.runtime.fleet.stale_loops import AsyncLoop, PipelinedLoop
from rl_training.runtime.loops import Loop
from rl_training.runtime.setup.loop_setup import open_loop
from rl_training.runtime.stop_signals import StopSignals

NEXT_STEP = {"vector_backend": "native", "env_kwargs": {"max_episode_steps": 7}, "total": 385}


@contextlib.contextmanager
def loop_of(mode: str, *, actors: int = 2, total: int = 200, backend: str = "inline", **changes: Any) -> Iterator[Loop]:
    base = {"algo": "impala", "env_id": "CartPole-v1", "num_envs": 4, "total_timesteps": total, "checkpoint_every": 0}
    runtime = {"actors": actors, "mode": mode, "backend": backend}
    settings = {"num_steps": 5, **changes.pop("algo_kwargs", {})}
    config = load_config(
        {**base, "runtime": runtime, "model": {"hidden_sizes": [8]}, "algo_kwargs": settings, **changes}
    )
    with open_loop(config, None, None, StopSignals()) as loop:
        yield loop


def assert_account(loop: Loop) -> dict[str, int]:
    """The identity of the ledger, and that the clock is what was learned or dropped."""
    line = loop.figures()
    parts = ("learned", "stale", "lost", "in_flight")
    assert line["env_steps_granted"] == sum(line[f"env_steps_{name}"] for name in parts)
    assert line["env_steps_learned"] + line["env_steps_stale"] == loop.env_steps
    return line


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_lag_of_a_pipelined_run_is_one_but_for_the_first_rollout(backend: str) -> None:
    with loop_of("pipelined", backend=backend) as loop:
        assert isinstance(loop, PipelinedLoop)
        lags = [(line["lag_mean"], line["lag_max"]) for _ in loop if (line := assert_account(loop))]
    assert lags == [(0, 0)] + [(1, 1)] * 9


def test_nothing_is_collected_ahead_of_a_checkpoint() -> None:
    with loop_of("pipelined", checkpoint_every=60) as loop:
        in_flight = {progress.env_steps: assert_account(loop)["env_steps_in_flight"] for progress in loop}
    assert [step for step, steps in in_flight.items() if steps == 0] == [60, 120, 180, 200]


class FirstActorFirst(InlineFleet):
    """Actor 0 is so fast that it works off two tickets while the other has one."""

    def poll(self, seconds: float) -> list[Delivery | ActorFailure]:
        self._tickets = deque(sorted(self._tickets, key=lambda ticket: ticket.actor))
        return super().poll(seconds)


def orders_and_lines(fleet: type[InlineFleet], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Any, ...]:
    """The tickets that a pipelined run grants and delivers by actor and length, its metric lines and its weights."""
    monkeypatch.setattr(fleet_setup, "InlineFleet", fleet)
    with loop_of("pipelined", **changes) as loop:
        crew, orders = loop.collector, []
        grant, poll = crew.fleet.grant, crew.fleet.poll
        crew.fleet.grant = lambda ticket: (orders.append(("+", ticket.actor, ticket.num_steps)), grant(ticket))[1]
        crew.fleet.poll = lambda seconds: (events := poll(seconds), orders.append(("-", events[0].actor)))[0]
        lines = [assert_account(loop) for _ in loop]
        return orders, lines, [array.copy() for array in loop.learner.acting_state()]


def test_a_pipelined_actor_goes_on_before_the_slowest_has_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    orders, *_ = orders_and_lines(InlineFleet, monkeypatch)
    assert orders[:6] == [("+", 0, 5), ("+", 1, 5), ("-", 0), ("+", 0, 5), ("-", 1), ("+", 1, 5)]


@pytest.mark.parametrize("changes", [{}, {"checkpoint_every": 60}, {"total": 191}, NEXT_STEP])
def test_a_pipelined_run_does_not_depend_on_who_is_faster(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turn, lines, weights = orders_and_lines(InlineFleet, monkeypatch, **changes)
    other, other_lines, other_weights = orders_and_lines(FirstActorFirst, monkeypatch, **changes)
    assert in_turn != other
    assert ("-", 0) in [pair for here, pair in pairwise(other) if here == ("+", 0, 5)]  # two deliveries in a row
    assert lines == other_lines
    for ours, theirs in zip(weights, other_weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["pipelined", "async"])
@pytest.mark.parametrize("total", [200, 207, 191, 212])
def test_the_budget_is_used_like_that_of_the_plain_loop(mode: str, total: int) -> None:
    with loop_of("lockstep", actors=1, total=total) as plain:
        expected = [progress.env_steps for progress in plain]
    with loop_of(mode, total=total) as loop:
        assert [progress.env_steps for progress in loop] == expected
        assert loop.is_over
        assert assert_account(loop)["env_steps_in_flight"] == 0


def test_async_learns_every_rollout_once_and_never_grants_beyond_the_budget() -> None:
    with loop_of("async", backend="process", total=400) as loop:
        assert isinstance(loop, AsyncLoop) and not loop.is_exact
        learned: list[np.ndarray] = []
        update = loop.learner.update
        loop.learner.update = lambda batch: (learned.append(batch.valid.copy()), update(batch))[1]  # type: ignore
        for _ in loop:
            line = assert_account(loop)
            assert line["env_steps_granted"] <= 400
            assert line["lag_max"] <= 20
            assert line["queue"] <= 4
        assert loop.env_steps == 400
        assert sum(int(valid.sum()) for valid in learned) == line["env_steps_learned"] == 400


def test_a_rollout_older_than_max_lag_is_counted_and_not_learned() -> None:
    with loop_of("async", total=400, algo_kwargs={"normalize_rewards": True}) as loop:
        assert isinstance(loop, AsyncLoop)
        loop.collector.max_lag = 0  # two actors in turn: every second batch was granted before the update ahead of it
        rows = []
        update = loop.learner.update
        loop.learner.update = lambda batch: (rows.append(int(batch.valid.sum())), update(batch))[1]  # type: ignore
        for _ in loop:
            line = assert_account(loop)
        assert line["env_steps_stale"] > 0
        assert sum(rows) == line["env_steps_learned"] > 0
        assert loop.learner.updates == len(rows) < 20
        assert loop.env_steps == 400


def test_many_stale_steps_are_told_once_with_the_remedy() -> None:
    with loop_of("async", total=2000) as loop:
        assert isinstance(loop, AsyncLoop)
        loop.collector.max_lag = 0
        for _ in loop:
            pass
        (note,) = loop.collector.notes
    assert "were older than runtime.max_lag=0 updates and not learned: use a smaller num_steps" in note


def test_a_rollout_that_takes_too_long_after_a_stop_signal_is_dropped() -> None:
    with loop_of("pipelined") as loop:
        rounds = iter(loop)
        next(rounds)
        before = loop.env_steps, loop.learner.updates
        loop.collector.overdue = lambda: True
        assert list(rounds) == []
        assert loop.dropped and (loop.env_steps, loop.learner.updates) == before
        assert assert_account(loop)["env_steps_in_flight"] == 0


def test_no_ticket_is_granted_while_two_batches_wait() -> None:
    with loop_of("async", total=10_000) as loop:
        assert isinstance(loop, AsyncLoop)
        crew = loop.collector
        for _ in range(20):
            loop._grant()
            if crew.ledger.tickets_out:
                crew.wait()
        assert len(crew.arrived) == 4
        assert not crew.ledger.tickets_out
        assert crew.ledger.in_flight == 4 * 10


def test_two_rollouts_of_one_actor_in_a_batch_are_normalized_as_those_of_its_envs_in_order() -> None:
    from rl_training.algorithms.common.rewards import ReturnNormalizer

    with loop_of("async", algo_kwargs={"normalize_rewards": True}) as loop:
        assert isinstance(loop, AsyncLoop)
        crew, deliveries = loop.collector, []
        for _ in range(2):
            crew.grant(1, 5, 0)
            crew.wait()
            deliveries.append(crew.arrived.popleft())
        loop._batch = deliveries
        rollout, _ = crew.learned_rollout(deliveries)
        normalized = loop.normalized(rollout.rewards, rollout)
        expected = ReturnNormalizer(loop.learner.config.gamma, 4)
        for columns in (slice(0, 2), slice(2, 4)):
            starts, valid = rollout.episode_starts[:, columns], rollout.valid[:, columns]
            part = expected(rollout.rewards[:, columns], starts, valid, slice(2, 4))
            assert np.array_equal(normalized[:, columns], part)
        normalizer = loop.learner.return_normalizer
    assert normalizer is not None and np.array_equal(normalizer.running, expected.running)
    assert not normalizer.running[:2].any() and normalizer.running[2:].all()


def test_return_normalizer_keeps_the_return_of_each_env_apart(tmp_path: Path) -> None:
    from rl_training.algorithms.common.rewards import ReturnNormalizer

    rng = np.random.default_rng(0)
    rewards, starts = rng.normal(size=(6, 4)).astype(np.float32), rng.random((6, 4)) < 0.2
    valid = np.ones((6, 4), bool)
    whole, parts = ReturnNormalizer(0.9, 4), ReturnNormalizer(0.9, 4)
    whole(rewards, starts, valid)
    for envs in (slice(2, 4), slice(0, 2)):
        parts(rewards[:, envs], starts[:, envs], valid[:, envs], envs)
    assert np.array_equal(whole.running, parts.running)
    assert (whole.count, whole.mean, whole.variance) == pytest.approx((parts.count, parts.mean, parts.variance))
