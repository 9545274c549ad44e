"""Callbacks: when hooks are called, what they may log and stop, their state, and what is refused in one line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reporting_env import Counting
from rl_training import PPO, Callback
from rl_training.errors import ConfigError
from rl_training.runtime.callbacks.callback import RunContext
from rl_training.runtime.callbacks.callback_entry import HOOKS
from rl_training.runtime.workflows import TrainResult, resume, train
from rl_training.storage.checkpoints import load_checkpoint
from rl_training.telemetry.recorder import read_metrics
from run_cases import CASES, Case, assert_same_run, metric_lines, stop_at

A2C = CASES["a2c, one env"]
DQN = CASES["dqn, one env, a buffer that overflows"]
BOTH = pytest.mark.parametrize("case", [A2C, DQN], ids=["on-policy", "replay"])


def run(folder: Path, callback: Any = None, case: Case = A2C, **changes: Any) -> TrainResult:
    return train(case.config(folder, **changes), callback=callback, show=False)


def info(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


def hooked(**hooks: Any) -> Callback:
    """A callback of these hooks."""
    methods = {name: (lambda function: lambda self, context: function(context))(hook) for name, hook in hooks.items()}
    return type("Hooked", (Callback,), methods)()


def test_hooks_are_called_in_order(tmp_path: Path) -> None:
    watch = Counting()
    run(tmp_path, watch, eval_every=40)
    assert watch.calls[0] == "start" and watch.calls[-1] == "finished"
    assert watch.calls.count("round") == 32  # five steps each
    assert watch.calls.count("checkpoint") == 4
    assert watch.calls.count("evaluation") == 5  # at every quarter, and the run's result
    episodes = [line["episodes"] for line in read_metrics(tmp_path / "run") if line["kind"] == "train"][-1]
    assert watch.calls.count("episode") == episodes > 3
    # At a step with all of them: the rounds, then the evaluation, then the save.
    assert watch.calls[watch.calls.index("evaluation") - 1 :][:3] == ["round", "evaluation", "checkpoint"]


def test_a_callback_changes_nothing_but_what_it_logs(tmp_path: Path) -> None:
    for case, name in ((A2C, "a2c"), (DQN, "dqn")):
        plain = run(tmp_path / name / "plain", None, case, eval_every=40)
        watched = run(tmp_path / name / "watched", Counting(), case, eval_every=40)
        extra = {"total", "longest", "eval_total"}
        lines = [{k: v for k, v in line.items() if k not in extra} for line in metric_lines(watched.run_dir)]
        assert lines == metric_lines(plain.run_dir)
        states = [load_checkpoint(result.checkpoint).state for result in (plain, watched)]
        assert "callbacks" in states[1] and "callbacks" not in states[0]


def test_logged_values_are_means_since_the_last_line(tmp_path: Path) -> None:
    numbers = iter(range(1000))
    result = run(tmp_path, hooked(on_round=lambda context: context.log("mine", next(numbers))), log_every=20)
    lines = [line for line in read_metrics(result.run_dir) if line["kind"] == "train"]
    assert [line["mine"] for line in lines] == [1.5 + 4 * line for line in range(8)]  # four rounds in a line


def test_what_an_evaluation_logs_is_in_its_line_also_in_the_last_one(tmp_path: Path) -> None:
    watch = hooked(on_evaluation=lambda context: context.log("twice", 2 * context.evaluation.mean_return))
    result = run(tmp_path, watch, eval_every=40)
    lines = [line for line in read_metrics(result.run_dir) if line["kind"] == "eval"]
    assert len(lines) == 5
    assert all(line["eval_twice"] == 2 * line["eval_mean_return"] for line in lines)


@pytest.mark.parametrize("value", [True, 3, 0.5, np.float32(2), np.int64(4), torch.tensor(1.5), np.array(2)], ids=repr)
def test_every_kind_of_number_can_be_logged(value: Any, tmp_path: Path) -> None:
    result = run(tmp_path, hooked(on_round=lambda context: context.log("mine", value)))
    assert read_metrics(result.run_dir)[0]["mine"] == float(value)


BAD_LOGS = {
    "not a name": (lambda context: context.log("My Name", 1), r"context.log: 'My Name' is not a name"),
    "escape": (lambda context: context.log("\x1b[31m", 1), r"context.log: '\[31m' is not a name"),
    "ours": (lambda context: context.log("env_steps", 1), r"the name env_steps belongs to the library"),
    "a prefix of ours": (lambda context: context.log("eval_x", 1), r"the name eval_x belongs to the library"),
    "no number": (lambda context: context.log("mine", "3"), r"mine is '3', expected a number"),
    "too many": (lambda context: [context.log(f"n{number}", 1) for number in range(200)], r"one name too many"),
    "no text": (lambda context: context.log(3, 1), r"3 is not a name"),
}


@pytest.mark.parametrize("name", BAD_LOGS)
def test_a_bad_log_is_one_line_and_the_run_lives_on(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call, text = BAD_LOGS[name]
    result = run(tmp_path, hooked(on_round=call))
    told = capfd.readouterr().err
    assert told.count("\n") == 1 and re.search(text, told), told
    assert "callback Hooked: on_round failed at step 5" in told and "the run continues without it" in told
    assert result.env_steps == 160 and info(result.run_dir)["status"] == "finished"
    assert len(result.callback_failures) == 1 and result.summary()["callback_failures"]


@pytest.mark.parametrize("hook", ["on_start", "on_checkpoint", "on_end"])
def test_hooks_that_a_resumed_run_would_not_repeat_cannot_log(
    hook: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = hooked(**{hook: lambda context: context.log("mine", 1)})
    if hook == "on_start":
        with pytest.raises(ConfigError, match=r"context.log: works in on_round, on_episode, on_evaluation, not in"):
            run(tmp_path, watch)
    else:
        run(tmp_path, watch)
        assert f"not in {hook}" in capfd.readouterr().err
    assert not any("mine" in line for line in read_metrics(tmp_path / "run"))


def test_values_that_are_not_finite_are_left_out_and_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = iter([1.0, math.nan, 3.0, math.inf] + [2.0] * 40)
    result = run(tmp_path, hooked(on_round=lambda context: context.log("mine", next(values))), log_every=20)
    assert read_metrics(result.run_dir)[0]["mine"] == 2.0
    assert capfd.readouterr().err == "warning: callback Hooked: mine is nan; such values are left out\n"


def test_a_metric_of_the_algorithm_is_not_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plain = run(tmp_path / "plain")
    result = run(tmp_path / "watched", hooked(on_round=lambda context: context.log("policy_loss", 7)))
    assert metric_lines(result.run_dir) == metric_lines(plain.run_dir)
    assert capfd.readouterr().err.count("policy_loss is a metric of the algorithm") == 1


# Stop


@pytest.mark.parametrize("how", ["False", "stop"])
def test_a_run_that_a_callback_stops_is_finished_and_says_why(how: str, tmp_path: Path) -> None:
    def at_sixty(context: RunContext) -> bool | None:
        if context.env_steps < 60:
            return None
        if how == "stop":
            context.stop("good \x1b[31menough\n")
            return None
        return False

    result = run(tmp_path, hooked(on_round=at_sixty))
    reason = "good [31menough" if how == "stop" else "Hooked.on_round returned False"
    assert (result.env_steps, result.interrupted, result.stop_reason, result.unused_steps) == (60, False, reason, 0)
    assert result.evaluation is not None and result.summary()["stop_reason"] == reason
    stored = info(result.run_dir)
    assert (stored["status"], stored["stop_reason"], stored["stopped_at"]) == ("finished", reason, 60)


@BOTH
@pytest.mark.parametrize("step", [60, 80], ids=["off schedule", "on schedule"])
def test_a_run_that_stopped_by_itself_goes_on_as_if_it_had_not(case: Case, step: int, tmp_path: Path) -> None:
    def stop(context: RunContext) -> bool:
        return context.env_steps < step

    whole = run(tmp_path / "whole", hooked(on_round=lambda context: None), case, eval_every=40)
    half = run(tmp_path / "half", hooked(on_round=stop), case, eval_every=40)
    assert half.env_steps == step
    done = resume(half.run_dir, callback=hooked(on_round=lambda context: None), show=False)
    assert (done.env_steps, done.stop_reason) == (160, None)
    assert_same_run(whole.run_dir, done.run_dir)
    assert "stop_reason" not in {name for name, value in info(done.run_dir).items() if value is not None}


def test_the_same_callback_stops_again_only_later(tmp_path: Path) -> None:
    half = run(tmp_path, hooked(on_round=lambda context: context.env_steps < 60))
    again = resume(half.run_dir, callback=hooked(on_round=lambda context: context.env_steps < 60), show=False)
    assert (again.env_steps, again.interrupted) == (65, False)
    assert resume(half.run_dir, show=False).env_steps == 160


def test_without_a_schedule_it_continues_from_where_it_stopped(tmp_path: Path) -> None:
    half = run(tmp_path, hooked(on_round=lambda context: context.env_steps < 60), checkpoint_every=0)
    seen: list[int] = []
    resume(half.run_dir, callback=hooked(on_round=lambda context: seen.append(context.env_steps)), show=False)
    assert seen[0] == 65


def test_learn_goes_on_after_a_stop(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", num_envs=2, num_steps=32, output_dir=str(tmp_path))
    agent.learn(1280, callback=hooked(on_round=lambda context: context.env_steps < 128), show=False)
    assert agent.env_steps == 128 and agent.result is not None and agent.result.stop_reason is not None
    assert agent.learn(64, show=False).env_steps == 192
    assert PPO.load(agent.run_dir).learn(64, show=False).env_steps == 256


def test_a_stop_with_the_last_step_is_an_ordinary_end(tmp_path: Path) -> None:
    result = run(tmp_path, hooked(on_round=lambda context: context.env_steps < 160))
    assert (result.env_steps, result.stop_reason) == (160, None)


def test_the_last_evaluations_cannot_stop_a_run_that_is_over(tmp_path: Path) -> None:
    reasons: list[Any] = []
    watch = hooked(
        on_evaluation=lambda context: context.stop("late"), on_end=lambda context: reasons.append(context.stop_reason)
    )
    result = run(tmp_path, watch)
    assert (result.stop_reason, reasons) == (None, [None])


def test_functions_still_interrupt_and_share_a_list_with_callbacks(tmp_path: Path) -> None:
    watch = Counting()
    result = run(tmp_path, [watch, stop_at(60)])
    assert (result.interrupted, result.stop_reason, result.env_steps) == (True, None, 60)
    assert watch.calls[-1] == "interrupted" and info(result.run_dir)["status"] == "interrupted"


# Errors


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "on_start"])
def test_a_callback_that_raises_is_turned_off_and_the_run_is_saved(
    hook: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []

    def fail(context: RunContext) -> None:
        calls.append(context.env_steps)
        raise ValueError("my own\ntrouble")

    other = Counting()
    result = run(tmp_path, [hooked(**{hook: fail}), other], eval_every=40)
    told = capfd.readouterr().err
    assert len(calls) == 1 and told.count("\n") == 1
    assert f"callback Hooked: {hook} failed at step " in told and "ValueError: my own trouble" in told
    assert "test_callbacks.py, line " in told
    assert result.env_steps == 160 and other.calls[-1] == "finished"
    assert resume(result.run_dir, total_timesteps=200, show=False).env_steps == 200


def test_a_callback_that_cannot_start_ends_the_run_at_once(tmp_path: Path) -> None:
    def fail(context: RunContext) -> None:
        raise OSError("no such place")

    with pytest.raises(ConfigError, match=r"^callback Hooked: on_start failed at step 0 .*OSError: no such place$"):
        run(tmp_path, hooked(on_start=fail))
    assert info(tmp_path / "run")["status"] == "failed"
    assert resume(tmp_path / "run", show=False).env_steps == 160


def test_a_wrong_answer_turns_the_callback_off(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, hooked(on_round=lambda context: "stop"))
    assert "returned 'stop', expected None or True to continue, or False to stop" in capfd.readouterr().err


def test_on_end_sees_the_error_that_ended_the_run(tmp_path: Path) -> None:
    seen: list[Any] = []

    def fail(progress: Any) -> None:
        raise RuntimeError("trouble")

    watch = hooked(on_end=lambda context: seen.append((context.status, str(context.error))))
    with pytest.raises(RuntimeError, match="trouble"):
        run(tmp_path, [watch, fail])
    assert seen == [("failed", "trouble")]


class NoHooks(Callback):
    pass


class Misspelled(Callback):
    def on_rounds(self, context: RunContext) -> None: ...


class TooMany(Callback):
    def on_round(self, context: RunContext, more: int) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        (Counting, r"^callback: Counting is a class, pass an instance: Counting\(\)$"),
        ([Counting], r"^callback: Counting is a class"),
        (3, r"^callback: 3 has no hooks and is not a function; pass a rl_training.Callback"),
        ([None], r"^callback: null has no hooks"),
        ("my.module:Thing", r"^callback: 'my.module:Thing' has no hooks"),
        (NoHooks(), r"^callback NoHooks: overrides no hook, the hooks are on_start"),
        (Misspelled(), r"^callback Misspelled: on_rounds is not a hook, did you mean on_round\?$"),
        (TooMany(), r"^callback TooMany: on_round must take one argument, the context$"),
    ],
    ids=["class", "list of a class", "number", "null", "text", "no hooks", "misspelled hook", "two arguments"],
)
def test_a_wrong_kind_of_callback_is_refused_before_a_run_is_made(callback: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        run(tmp_path, callback)
    assert str(caught.value).isprintable() and not list(tmp_path.iterdir())


def test_an_object_with_hooks_need_not_be_a_subclass(tmp_path: Path) -> None:
    class Plain:
        rounds = 0

        def on_round(self, context: RunContext) -> None:
            self.rounds += 1

    plain = Plain()
    run(tmp_path, plain)
    assert plain.rounds == 32


# State


@BOTH
def test_state_logs_and_the_last_evaluation_survive_a_resume(case: Case, tmp_path: Path) -> None:
    """The factor of the second one shows that each state goes to its own callback."""
    settings = {"eval_every": 40, "log_info": ["anything"]}
    both = [Counting(), Counting(2.0)]
    whole = run(tmp_path / "whole", both, case, **settings)
    half = run(tmp_path / "half", [Counting(), Counting(2.0), stop_at(80)], case, **settings)
    again = [Counting(), Counting(2.0)]
    done = resume(half.run_dir, callback=again, show=False)
    assert_same_run(whole.run_dir, done.run_dir)
    assert [each.total for each in again] == [each.total for each in both]


def test_the_state_of_a_callback_that_is_away_is_kept(tmp_path: Path) -> None:
    half = run(tmp_path, [Counting(), stop_at(80)])
    resume(half.run_dir, callback=stop_at(120), show=False)
    watch = Counting()
    resume(half.run_dir, callback=watch, show=False)
    assert watch.total > 0.0


@pytest.mark.parametrize(
    ("state", "text"),
    [({"a": {1, 2}}, "cannot store a set"), ({3: 1}, "the key 3 is not a string"), ("x" * 2_000_000, "more than")],
    ids=["a set", "a number as key", "large"],
)
def test_a_state_that_cannot_be_saved_turns_the_callback_off(
    state: Any, text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = hooked(on_round=lambda context: None)
    watch.state_dict = lambda: state  # type: ignore[attr-defined]
    assert run(tmp_path, watch).env_steps == 160
    told = capfd.readouterr().err
    assert "callback Hooked: state_dict failed at step 0" in told and text in told and told.count("\n") == 1


def test_a_state_that_does_not_fit_is_one_line(tmp_path: Path) -> None:
    half = run(tmp_path, [Counting(), stop_at(80)])

    class Other(Counting):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise KeyError("best")

    Other.__name__ = "Counting"
    with pytest.raises(ConfigError, match=r"^callback Counting: load_state_dict failed .*KeyError: 'best'$"):
        resume(half.run_dir, callback=Other(), show=False)
