"""A stop is waited for, but not for ever: long rollouts are dropped, and a stuck command line leaves."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from rl_training import Callback
from rl_training.runtime import stop_signals
from rl_training.runtime.callbacks.callback import RunContext
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.workflows import resume, train
from rl_training.storage.checkpoints import latest_checkpoint
from run_cases import CASES, assert_same_run, metric_lines
from waiting import DEADLINE_SECONDS

CASE = CASES["a2c, one env"]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_stop_is_overdue_only_some_seconds_after_the_first_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(stop_signals, "time", clock)
    with StopSignals() as signals:
        assert not signals.requested and not signals.overdue()
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.requested and not signals.overdue()
        clock.now += stop_signals.ROLLOUT_GRACE_SECONDS + 0.1
        assert signals.overdue()


@pytest.mark.parametrize("step", [43, 78])
def test_a_dropped_rollout_leaves_the_run_as_it_was_before_it(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts have five steps, checkpoints are at 40 and 80: the first stop has nothing to save, the second has."""
    whole = train(CASE.config(tmp_path / "whole"), show=False)
    asked = iter(range(10**6))
    monkeypatch.setattr(StopSignals, "overdue", lambda self: next(asked) == step)
    stopped = train(CASE.config(tmp_path / "stopped"), show=False)
    assert stopped.interrupted
    newest = latest_checkpoint(stopped.run_dir)
    assert (newest.env_steps, newest.exact) == ((40, True) if step == 43 else (75, False))
    monkeypatch.setattr(StopSignals, "overdue", lambda self: False)
    again = resume(stopped.run_dir, show=False)
    assert again.env_steps == CASE.steps
    if newest.exact:
        assert_same_run(again.run_dir, whole.run_dir)
    else:
        before = [line for line in metric_lines(whole.run_dir) if line["env_steps"] <= 60]
        assert metric_lines(again.run_dir)[: len(before)] == before


@pytest.mark.parametrize(("has_checkpoint", "code", "words"), [(True, 75, "resume"), (False, 143, "nothing had been")])
def test_a_stuck_command_line_leaves_and_a_stuck_program_does_not(
    has_checkpoint: bool, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, function: Any, arguments: list[Any]) -> None:
            self.seconds, self.fire = seconds, lambda: function(*arguments)
            self.finished = threading.Event()

        def start(self) -> None:
            timers.append(self)

        def cancel(self) -> None:
            self.finished.set()

    left: list[Any] = []
    monkeypatch.setattr(stop_signals.threading, "Timer", Timer)
    monkeypatch.setattr(stop_signals, "_exit", lambda *arguments: left.append(arguments))
    monkeypatch.setattr(stop_signals, "_may_exit", False)
    with StopSignals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert timers == []

    stop_signals.exit_when_stuck()
    with StopSignals() as signals:
        signals.has_checkpoint = has_checkpoint
        os.kill(os.getpid(), signal.SIGTERM)
        assert timers[0].seconds < 10
        timers[0].fire()
        assert left[0][0] == code and words in left[0][1] and left[0][1].count("\n") == 1
        signals.saved()
        assert len(timers) == 1, "that was a save of the schedule: the run has yet to stop"
        signals.saving()
        assert timers[0].finished.is_set(), "a save that has begun may take its time"
        signals.saved()
        assert timers[1].seconds < 10
        timers[1].fire()
        assert left[1][0] == 75 and "the run is saved" in left[1][1] and left[1][1].count("\n") == 1
    assert timers[1].finished.is_set()


class HangsAfterTheSave(Callback):
    def __init__(self, hook: str) -> None:
        self.hook = hook

    def on_round(self, context: RunContext) -> None:
        if context.env_steps == 40:
            os.kill(os.getpid(), signal.SIGTERM)
            stop_signals.STUCK_SECONDS = 0.0  # for the second timer; the first one has started

    def on_checkpoint(self, context: RunContext) -> None:
        if self.hook == "on_checkpoint":
            threading.Event().wait()

    def on_end(self, context: RunContext) -> None:
        if self.hook == "on_end":
            threading.Event().wait()


@pytest.mark.parametrize("hook", ["on_checkpoint", "on_end"])
def test_a_callback_that_hangs_after_the_last_save_does_not_keep_the_process(hook: str, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(DEADLINE_SECONDS))
            stop_signals.STUCK_SECONDS = DEADLINE_SECONDS
            stop_signals.exit_when_stuck()
            train(CASE.config(tmp_path, checkpoint_every=0), callback=HangsAfterTheSave(hook), show=False)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 75
    assert latest_checkpoint(tmp_path / "run").env_steps == 40


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"has_checkpoint": True}, "`rl-training resume` continues from the last checkpoint"),
        ({}, "nothing had been saved yet"),
        ({"kept": "`rl-training zoo run` continues"}, "`rl-training zoo run` continues"),
    ],
)
def test_a_second_signal_says_in_one_line_what_is_kept(
    settings: dict[str, Any], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(stop_signals, "_may_exit", False)
    monkeypatch.setattr(stop_signals, "_exit", lambda *arguments: left.append(arguments))
    with StopSignals(**settings):
        os.kill(os.getpid(), signal.SIGINT)
        assert left == []
        os.kill(os.getpid(), signal.SIGTERM)
    assert left == [(130, f"second signal: exited at once, without saving; {kept}\n")]


def test_an_exit_does_not_need_a_terminal_that_takes_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    def gone(*arguments: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stop_signals, "_may_exit", False)
    monkeypatch.setattr(stop_signals.os, "write", gone)
    monkeypatch.setattr(stop_signals.os, "_exit", left.append)
    stop_signals._exit(130, "text")
    assert left == [130]


def test_sighup_stops_a_run_unless_it_was_ignored_before() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, stops in ((signal.SIG_DFL, True), (signal.SIG_IGN, False)):
            signal.signal(signal.SIGHUP, handler)
            with StopSignals() as signals:
                os.kill(os.getpid(), signal.SIGHUP) if stops else None
                assert signals.requested == stops
                assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) == (not stops)
            assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)
