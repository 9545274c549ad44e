"""A session: one process's work on one run, from its first step to its result.

`run_session` builds every part, passes them to a `Session` and closes them at the end. `Session.train` is the story of
a run: log, evaluate, save, stop. Nothing else in the library contains a training loop.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from rl_training.config.train_config import TrainConfig
from rl_training.data.replay_memory import ran_out_of_memory
from rl_training.diagnosis.findings_file import FindingsSink
from rl_training.diagnosis.run_finding import Finding
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.errors import CheckpointError, ConfigError
from rl_training.models.encoders.own_encoder import notes_on
from rl_training.models.layers.precision import EMULATED, has_bfloat16
from rl_training.runtime.agent import Agent
from rl_training.runtime.auto_settings import limited_threads
from rl_training.runtime.callbacks.callback import Hooks, RunContext, Status, Surroundings
from rl_training.runtime.callbacks.callback_entry import answers_false
from rl_training.runtime.callbacks.callback_list import ProgressFunction
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult, evaluate
from rl_training.runtime.loops import Loop, Progress
from rl_training.runtime.output.crash_reports import CrashReports
from rl_training.runtime.output.metric_window import MetricWindow
from rl_training.runtime.output.run_saver import RunSaver
from rl_training.runtime.output.train_result import TrainResult
from rl_training.runtime.run_clock import Cadence, RunClock
from rl_training.runtime.setup.run_envs import eval_env_maker
from rl_training.runtime.stop_signals import StopSignals
from rl_training.storage.checkpoints import Checkpoint, fingerprint, fingerprint_differences
from rl_training.storage.run_directory import RunDirectory
from rl_training.storage.session_record import describe_session, with_session
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.metric_lines import warn
from rl_training.telemetry.recorder import Recorder
from rl_training.telemetry.sinks import Sink, SinkRun
from rl_training.text import one_line

__all__ = ["Session", "TrainResult", "run_session"]


@dataclass
class Evaluations:
    """What has happened to the evaluations of a session so far."""

    error: Exception | None = None  # of an evaluation after the last step of the run
    told_of_cuts: bool = False
    training_is_over: bool = False  # from here on an evaluation that fails must not take the trained agent away


@dataclass(frozen=True)
class Session:
    """The finished parts of one session, and the training that uses them."""

    config: TrainConfig
    run: RunDirectory
    loop: Loop
    agent: Agent
    make_eval_env: Callable[[], gym.Env[Any, Any]] | None  # None: nothing to evaluate on
    signals: StopSignals
    window: MetricWindow
    display: ConsoleDisplay
    recorder: Recorder
    saver: RunSaver
    crashes: CrashReports
    findings: FindingsSink
    clock: RunClock
    hooks: Hooks
    proofs: Mapping[str, Any]  # for run.json
    evaluations: Evaluations = field(default_factory=Evaluations)

    def train(self, checkpoint: Checkpoint | None, changes: Sequence[str] = ()) -> TrainResult:
        """Train to the end of the budget, or until a signal or a callback stops the run."""
        self._begin(checkpoint, changes)
        log, evaluation, save = self._cadences()
        next_due, stopped = 0.0, False
        for progress in self.loop:
            now = progress.env_steps
            self.window.add(progress)
            self.crashes.report_survived()
            self.display.update(now)
            if self.hooks.watches_rounds:
                self.hooks.round(progress)
            if now >= next_due:
                if log.due(now):
                    self._log()
                cut_short = evaluation.due(now) and self._evaluate(self._eval_seed()) is None
                # A stop signal or an error may cut an evaluation short. Its metric line is then missing, so a save here
                # would not be exact: the run ends below and saves an inexact checkpoint.
                if save.due(now) and not cut_short:
                    self._save(exact=True)
                    self.loop.restart_envs()
                next_due = min(log.next, evaluation.next, save.next)
            if self.signals.requested or any(self._asks_to_stop(each, progress) for each in self.hooks.functions):
                stopped = now < self.config.total_timesteps
                break
            if self.hooks.stop_reason is not None:
                break
        return self._finish(stopped or self.loop.dropped)

    def _asks_to_stop(self, function: ProgressFunction, progress: Progress) -> bool:
        """Whether the function returned False. Anything but a truth value or None is an error, after a save."""
        answer = function(progress)
        try:
            return answers_false(answer)
        except TypeError as error:
            if self.saver.saved_at != self.loop.env_steps:
                self._save(exact=False)
            raise ConfigError(
                f"callback: {error}; the run is saved at step {self.loop.env_steps:,} and can be resumed"
            ) from None

    def _begin(self, checkpoint: Checkpoint | None, changes: Sequence[str]) -> None:
        info = self.run.read_info()
        sessions = with_session(info.get("sessions"), describe_session(self.loop.env_steps))
        total = self.config.total_timesteps
        no_reason = {"stop_reason": None} if "stop_reason" in info else {}  # of the stop that it goes past now
        facts = {**self.loop.facts, **no_reason, **self.proofs}
        self.run.update(status="running", total_timesteps=total, sessions=sessions, **facts)
        if checkpoint is None:
            # The first save proves that path and disk are good before any time is spent.
            self._save(exact=True, must=True)
            self.signals.has_checkpoint = True
            self.hooks.start()
            return
        for reason in checkpoint.skipped:
            self.display.note(f"skipped a damaged checkpoint: {reason}")
        changes = [*fingerprint_differences(checkpoint.fingerprint, fingerprint()), *changes]
        stopped_at = self.hooks.ignore_stops_until
        if stopped_at > checkpoint.env_steps:
            self.display.note(
                f"the run stopped at step {stopped_at:,}, off its checkpoint schedule: it continues from step "
                f"{checkpoint.env_steps:,}, as if it had not stopped"
            )
        elif stopped_at == checkpoint.env_steps > 0 and not checkpoint.exact:
            changes.append("the run stopped off its checkpoint schedule")
        if changes:
            self.display.note(f"continuing, but not bit for bit: {', '.join(changes)}")
        self.loop.restart_envs()
        self.hooks.start()

    def _cadences(self) -> tuple[Cadence, Cadence, Cadence]:
        """Of metric lines, evaluations and checkpoints."""
        start, config = self.loop.env_steps, self.config
        eval_every = 0 if self.make_eval_env is None else config.eval_every
        assert config.checkpoint_every != "auto"  # resolved before the loop was built
        return Cadence(config.log_every, start), Cadence(eval_every, start), Cadence(config.checkpoint_every, start)

    def _finish(self, stopped: bool) -> TrainResult:
        self.signals.saving()
        self.crashes.report_survived()  # what ended the last round
        self._log()
        self._tell_of_infos(at_end=True)
        # A run that stops by itself is finished: it has done what it was asked to do.
        stop_reason = None if stopped or self.loop.is_over else self.hooks.stop_reason
        self.hooks.close(stop_reason)
        if stop_reason is not None:
            self._update_run_file(stop_reason=stop_reason, stopped_at=self.loop.env_steps)
            self.display.note(f"stopped at step {self.loop.env_steps:,}: {stop_reason}")
        if self.saver.saved_at != self.loop.env_steps:
            self._save(exact=False, must=True)
        # After the save: a resumed run continues the metric stream from there, as if there had been no evaluation.
        self.evaluations.training_is_over = not stopped
        result = None if stopped else self._final_evaluation()
        seconds, steps_per_second = self.clock.seconds(), self.clock.steps_per_second()
        status: Status = "interrupted" if stopped else "finished"
        self._update_run_file(status=status, wall_seconds=seconds, **self.loop.facts)
        self.hooks.end(status)
        assert self.saver.last_path is not None  # the first save must succeed
        unused = 0 if stopped or stop_reason is not None else max(0, self.config.total_timesteps - self.loop.env_steps)
        return TrainResult(
            run_dir=self.run.shown(self.run.path),
            checkpoint=self.run.shown(self.saver.last_path),
            env_steps=self.loop.env_steps,
            wall_seconds=seconds,
            steps_per_second=steps_per_second,
            evaluation=result,
            interrupted=stopped,
            agent=self.agent,
            failed_saves=self.saver.failures,
            evaluation_error=self.evaluations.error,
            unused_steps=unused,
            unused=self.loop.remainder if unused else "",
            stop_reason=stop_reason,
            callback_failures=tuple(self.hooks.failures),
            findings=self.findings.findings,
        )

    def _log(self) -> None:
        self.run.check_in_place()
        if not self.window.is_empty:
            line = self.window.line() | self.loop.figures()
            line |= self.hooks.take_logged(line)
            failed = {"failed_saves": self.saver.failures} if self.saver.failures else {}
            self.recorder.record(line | self.clock.metrics() | failed | self.crashes.counts())
            self._tell_of_infos()

    def _tell_of_infos(self, *, at_end: bool = False) -> None:
        """Tell what is wrong with the numbers of `log_info`, once."""
        numbers = self.loop.collector.info_numbers
        if at_end:
            numbers.report_missing()
        for problem in numbers.take_problems():
            warn(problem)

    def _save(self, *, exact: bool, must: bool = False) -> None:
        self._log()
        path = self.saver.save(self.recorder, exact=exact, must=must)
        if path is not None:
            self.signals.saved()
            self._update_run_file(wall_seconds=self.clock.seconds(), env_steps=self.loop.env_steps, **self.loop.facts)
            if self.loop.env_steps:  # the first save is before `on_start`
                self.hooks.saved(path)

    def _update_run_file(self, **fields: Any) -> None:
        """run.json is for people and listings: a failure to write it does not end the run."""
        try:
            self.run.update(**fields)
        except CheckpointError as error:
            self.display.note(str(error))

    def _eval_seed(self) -> int:
        return self.loop.streams.seed_for("evaluation", self.loop.env_steps)

    def _evaluate(self, seed: int, *, competes: bool = True) -> EvalResult | None:
        """Evaluate the agent, record the result and keep the best agent; None if a stop signal cut it short.

        None, too, if it failed after the last step of the run: the agent is trained, and an env that fails only now
        must not take it away.
        """
        assert self.make_eval_env is not None
        # Losses since the last metric line are not checked yet, and a diverged agent must not become the best one.
        self.window.check()
        try:
            result = evaluate(
                self.agent,
                self.make_eval_env,
                episodes=self.config.eval_episodes,
                seed=seed,
                max_steps=self.config.eval_max_steps,
                stopped=lambda: self.signals.requested,
                numbers=self.loop.collector.info_numbers,
            )
        except Exception as error:
            if not (self.loop.is_over or self.evaluations.training_is_over):
                raise
            self.crashes.keep(error)
            self.evaluations.error = error
            return None
        if result is None:
            return None
        self.saver.evaluated_at = self.loop.env_steps
        line = {"kind": "eval", "env_steps": self.loop.env_steps, "eval_seed": seed}
        line |= {f"eval_{name}": value for name, value in result.summary().items()}
        self.recorder.record(line | self.hooks.evaluation(result))
        self._tell_of_infos()
        if competes:
            self.saver.save_best(result.mean_return)
        is_last = self.loop.is_over or self.evaluations.training_is_over
        if result.finding is not None and not is_last and not self.evaluations.told_of_cuts:
            self.evaluations.told_of_cuts = True  # once, and the last evaluation is in the result
            self.display.note(result.finding)
        return result

    def _final_evaluation(self) -> EvalResult | None:
        """The run's result, on the same seeds as `rl-training eval`.

        If the run is evaluated during training, agents compete on other seeds, the last one too: otherwise the result
        would be the best of many looks at the same episodes.
        """
        if self.make_eval_env is None:
            return None
        during_training = self.config.eval_every > 0
        if during_training and self.saver.evaluated_at != self.loop.env_steps and self.evaluations.error is None:
            self._evaluate(self._eval_seed())
        if self.evaluations.error is not None:
            return None
        result = self._evaluate(DEFAULT_SEED, competes=not during_training)
        if during_training and result is not None:
            self.display.note(
                f"final evaluation: {result.mean_return:.1f} (seeds {DEFAULT_SEED} to "
                f"{DEFAULT_SEED + self.config.eval_episodes - 1}); evaluations during training, including the one at "
                "this step, use other seeds"
            )
        return result


def run_session(
    loop: Loop,
    run: RunDirectory,
    signals: StopSignals,
    *,
    env: EnvSource | None,
    eval_env: str | EnvMaker | None,
    hooks: Hooks,
    show: bool | None,
    checkpoint: Checkpoint | None = None,
    sinks: Sequence[Sink] = (),
    proofs: Mapping[str, Any] | None = None,
    changes: Sequence[str] = (),
    agent_ready: Callable[[Agent], None] | None = None,
) -> TrainResult:
    """Build a session, train, and close everything again. An error is reported in the run directory and raised.

    The caller has locked the run and made the `sinks`; `proofs` are the fields of run.json that say who chose them.
    `changes` are the settings, in words, that keep a resumed run from continuing bit for bit.
    """
    started, config = time.perf_counter(), loop.config
    agent = Agent(loop.learner, loop.collector.spaces, config)
    if agent_ready is not None:
        agent_ready(agent)
    start_step = 0 if checkpoint is None else checkpoint.env_steps
    display = ConsoleDisplay(
        config.total_timesteps, f"{config.algo} on {config.env_id}", start_step=start_step, enabled=show
    )
    loop.learner.note = display.note
    window = MetricWindow(loop.collector.info_numbers.names)
    drawing = eval_env_maker(config, env, eval_env, render_mode="rgb_array")
    surroundings = Surroundings(drawing, lambda: signals.requested, display.note)
    hooks.attach(RunContext(agent, run, loop, hooks, surroundings))
    saver = RunSaver(run, config, agent.spaces, loop, window, hooks, display.note)
    crashes = CrashReports(run.path, config, loop, display.note)
    with contextlib.ExitStack() as stack:
        seconds_before = 0.0
        if checkpoint is not None:
            saver.restore(checkpoint)
            seconds_before = run.read_info().get("wall_seconds", 0.0)
        stack.enter_context(limited_threads(int(config.threads)))
        stack.enter_context(display)
        for note in notes_on(loop.learner.model, agent.spaces, loop.collector.num_envs):
            display.note(note)
        if loop.learner.low_precision and loop.learner.device.type == "cpu" and not has_bfloat16():
            display.note(EMULATED)
        findings = FindingsSink(run.path, config, lambda finding: _tell(finding, display, recorder))
        recorder = Recorder(
            run.path,
            display=display,
            sinks=(findings,),
            resume_offset=saver.metrics_offset,
        )
        stack.enter_context(recorder)
        if checkpoint is not None:
            findings.rebuild()
        known = tuple(str(finding) for finding in findings.findings)
        settings = config.model_dump(mode="json")
        recorder.open_sinks(sinks, SinkRun(run.path, settings, findings=known, tell=display.note))
        session = Session(
            config=config,
            run=run,
            loop=loop,
            agent=agent,
            make_eval_env=eval_env_maker(config, env, eval_env),
            signals=signals,
            window=window,
            display=display,
            recorder=recorder,
            saver=saver,
            crashes=crashes,
            findings=findings,
            clock=RunClock(loop, started, seconds_before),
            hooks=hooks,
            proofs=proofs or {},
        )
        try:
            result = session.train(checkpoint, changes)
        except BaseException as error:
            crashes.keep(error)
            hooks.end("failed", error)
            # A full disk must not hide the error itself.
            with contextlib.suppress(CheckpointError):
                run.update(status="failed", **loop.facts)
            if ran_out_of_memory(error):
                raise ConfigError(
                    f"the run is out of memory ({one_line(error) or 'MemoryError'}): use smaller batches, rollouts or "
                    f"networks, or fewer environments"
                ) from error
            raise
    for line in result.warnings():  # now that the display has released the terminal
        warn(line)
    return result


def _tell(finding: Finding, display: ConsoleDisplay, recorder: Recorder) -> None:
    """Show a finding, and pass it to the trackers that take notes."""
    display.note(f"finding at {finding}")
    recorder.note(str(finding), finding.env_steps)
