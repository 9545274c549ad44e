"""Exact resume with actors: run(2N) equals run(N) + resume(N), also when the backend changes in between."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet_helpers import assert_same_but_for_the_fleet, run
from rl_training.command_line.common.checkpoint_report import make_report
from rl_training.runtime.callbacks.callback import Callback
from rl_training.runtime.fleet.processes import ProcessFleet
from rl_training.runtime.workflows import resume
from rl_training.storage.checkpoints import load_checkpoint
from run_cases import CASES, Case, assert_same_run, metric_lines, stop_at
from waiting import wait_until

PIPELINED = CASES["appo, box, target policy"]
LOCKSTEP = CASES["dqn, native next-step envs, priorities and three steps"]
OTHER = {"inline": "process", "process": "inline"}


@pytest.mark.parametrize("first", OTHER)
@pytest.mark.parametrize(("case", "mode"), [(PIPELINED, "pipelined"), (LOCKSTEP, "lockstep")])
def test_a_run_that_is_resumed_on_another_backend_equals_an_uninterrupted_one(
    case: object, mode: str, first: str, tmp_path: Path
) -> None:
    assert case in (PIPELINED, LOCKSTEP)
    case = PIPELINED if case is PIPELINED else LOCKSTEP
    whole = run(case, tmp_path / "whole", actors=2, backend="inline", mode=mode)
    half = run(case, tmp_path / "halves", stop_at(case.steps // 2), actors=2, backend=first, mode=mode)
    assert load_checkpoint(half.checkpoint).exact
    second = resume(half.run_dir, overrides={"runtime.backend": OTHER[first]}, show=False)
    assert not second.interrupted
    assert_same_run(whole.run_dir, second.run_dir)


def test_one_actor_continues_a_run_without_actors_and_the_other_way_round(tmp_path: Path) -> None:
    case = CASES["ppo, box, everything normalized and scheduled"]
    plain = run(case, tmp_path / "plain")
    for first, second in (("inline", "process"), ("process", "inline")):
        half = run(case, tmp_path / first, stop_at(case.steps // 2), backend=first)
        resumed = resume(half.run_dir, overrides={"runtime.backend": second}, show=False)
        assert_same_but_for_the_fleet(plain.run_dir, resumed.run_dir)


def test_a_stop_off_schedule_leaves_no_step_counted_that_was_not_learned(tmp_path: Path) -> None:
    case = PIPELINED
    stopped = run(case, tmp_path, stop_at(case.steps // 8), actors=2, backend="inline", mode="pipelined")
    checkpoint = load_checkpoint(stopped.checkpoint)
    assert not checkpoint.exact  # the next rollout was on its way
    ledger = checkpoint.state["loop"]["fleet"]["ledger"]
    assert (ledger["learned"], ledger["stale"], ledger["lost"]) == (stopped.env_steps, 0, 0)
    finished = resume(stopped.run_dir, show=False)
    assert finished.env_steps == case.steps
    assert metric_lines(finished.run_dir)[-2]["env_steps_learned"] == case.steps


def test_an_asynchronous_run_resumes_with_every_step_counted_once_and_says_that_it_is_not_exact(tmp_path: Path) -> None:
    case = PIPELINED
    half = run(case, tmp_path, stop_at(case.steps // 2), actors=2, backend="process", mode="async")
    report = make_report(half.checkpoint)
    assert report["exact"] is False
    assert report["config"]["runtime"]["mode"] == "async"
    counts = report["fleet"]["ledger"]
    assert counts["learned"] + counts["stale"] == half.env_steps
    finished = resume(half.run_dir, show=False)
    assert finished.env_steps == case.steps
    for line in metric_lines(finished.run_dir):
        if line["kind"] == "train":
            assert line["env_steps_learned"] + line["env_steps_stale"] == line["env_steps"]


def test_many_actors_in_one_process_resume_although_each_builds_a_model(tmp_path: Path) -> None:
    """The limit on the size of a model that a checkpoint may ask for counts the learner, not the actors."""
    case = replace(PIPELINED, num_envs=8)
    half = run(case, tmp_path, stop_at(case.steps // 2), actors=8, backend="inline", mode="pipelined")
    assert resume(half.run_dir, show=False).env_steps == case.steps


class KillOnce(Callback):
    """Kills actor 1 after the second round: it then has no ticket, so what is lost does not depend on timing."""

    def __init__(self) -> None:
        self._rounds = 0

    def on_round(self, context: Any) -> None:
        self._rounds += 1
        if self._rounds == 2:
            fleet = context._loop.collector.fleet
            assert isinstance(fleet, ProcessFleet)
            worker = dict(fleet._workers())[1]
            os.kill(worker.process, signal.SIGKILL)
            wait_until(worker.is_lost)


APEX = Case(
    "apex_td3",
    "Pendulum-v1",
    num_envs=4,
    steps=96,
    settings={"ticket_steps": 2, "batch_size": 8, "learning_starts": 16, "buffer_size": 200},
    options={"env_kwargs": {"max_episode_steps": 7}},
)


@pytest.mark.parametrize(
    "case", [LOCKSTEP, CASES["a3c, box, rewards normalized"], APEX], ids=["dqn", "a3c", "apex_td3"]
)
def test_a_run_with_a_replaced_actor_continues_exactly_from_the_checkpoint_after_it(case: Case, tmp_path: Path) -> None:
    """The envs of the replaced actor have other seeds from then on, in the run that is resumed too."""
    processes = {"actors": 2, "backend": "process", "mode": "lockstep"}
    whole = run(case, tmp_path / "whole", KillOnce(), **processes)
    half = run(case, tmp_path / "half", [KillOnce(), stop_at(case.steps // 2)], **processes)
    report = make_report(half.checkpoint)
    assert report["exact"] and report["fleet"]["restarts"] == 1 and report["fleet"]["ledger"]["lost"] > 0
    resumed = resume(half.run_dir, overrides={"runtime.backend": "inline"}, show=False)
    assert_same_run(whole.run_dir, resumed.run_dir)
