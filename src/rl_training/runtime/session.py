"""A session: one process's work on one run, from its first step to its result.

`run_session` builds every part, passes them to a `Session` and closes them at the end. `Session.train` is the story of
a run: log, evaluate, save, stop. Nothing else in the library contains a training loop.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from rl_training.algorithms.common.learner import Learner
from rl_training.algorithms.common.streams import Streams
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_types import EnvMaker, EnvSource
from rl_training.envs.factory import make_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError
from rl_training.runtime.agent import Agent
from rl_training.runtime.auto_settings import limited_threads, resolve_auto
from rl_training.runtime.crash_reports import CrashReports
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult, evaluate
from rl_training.runtime.loops import Loop, Progress
from rl_training.runtime.metric_window import MetricWindow
from rl_training.runtime.run_clock import Cadence, RunClock
from rl_training.runtime.run_envs import check_eval_env, require_stored_spaces, training_envs
from rl_training.runtime.run_saver import RunSaver
from rl_training.runtime.spec import get_spec
from rl_training.runtime.stop_signals import StopSignals
from rl_training.storage.checkpoints import Checkpoint, fingerprint, fingerprint_differences
from rl_training.storage.run_directory import RunDirectory
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.recorder import Recorder

Callback = Callable[[Progress], bool | None]


@dataclass(frozen=True)
class TrainResult:
    """Where a run ended. An `interrupted` run was stopped early and can be resumed."""

    run_dir: Path
    checkpoint: Path
    env_steps: int
    wall_seconds: float
    steps_per_second: float
    evaluation: EvalResult | None
    interrupted: bool
    agent: Agent
    failed_saves: int = 0

    def summary(self) -> dict[str, Any]:
        return {
            "run_dir": str(self.run_dir),
            "checkpoint": str(self.checkpoint),
            "env_steps": self.env_steps,
            "wall_seconds": round(self.wall_seconds, 3),
            "steps_per_second": round(self.steps_per_second, 1),
            "eval": None if self.evaluation is None else self.evaluation.summary(),
            **({"failed_saves": self.failed_saves} if self.failed_saves else {}),
        }


class Adviser:
    """Passes on a learner's advice, once, when two metric lines in a row call for it.

    One line proves little: at first a network is wrong about everything.
    """

    def __init__(self, learner: Learner, note: Callable[[str], None]) -> None:
        self._learner, self._note = learner, note
        self._last: str | None = None
        self._given: set[str] = set()

    def look(self, line: Mapping[str, Any]) -> None:
        advice = self._learner.advice(line)
        if advice is not None and advice == self._last and advice not in self._given:
            self._given.add(advice)
            self._note(advice)
        self._last = advice


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
    adviser: Adviser
    clock: RunClock

    def train(self, callback: Callback | None, checkpoint: Checkpoint | None) -> TrainResult:
        """Train to the end of the budget, or until a signal or `callback` stops the run."""
        self._begin(checkpoint)
        log, evaluation, save = self._cadences()
        next_due, stopped = 0.0, False
        for progress in self.loop:
            now = progress.env_steps
            self.window.add(progress)
            self.crashes.report_survived()
            self.display.update(now)
            if now >= next_due:
                if log.due(now):
                    self._log()
                cut_short = evaluation.due(now) and self._evaluate(self._eval_seed()) is None
                # A stop signal may cut an evaluation short. Its metric line is then missing, so a checkpoint here would
                # not be exact: the run stops below and saves an inexact one.
                if save.due(now) and not cut_short:
                    self._save(exact=True)
                    self.loop.restart_envs()
                next_due = min(log.next, evaluation.next, save.next)
            if self.signals.requested or (callback is not None and callback(progress) is False):
                stopped = now < self.config.total_timesteps
                break
        return self._finish(stopped or self.loop.dropped)

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        self.run.update(status="running", total_timesteps=self.config.total_timesteps)
        if checkpoint is None:
            # The first save proves that path and disk are good before any time is spent.
            self._save(exact=True, must=True)
            self.signals.has_checkpoint = True
            return
        for reason in checkpoint.skipped:
            self.display.note(f"skipped a damaged checkpoint: {reason}")
        changes = fingerprint_differences(checkpoint.fingerprint, fingerprint())
        if changes:
            self.display.note(f"continuing, but not bit for bit: {', '.join(changes)}")
        self.loop.restart_envs()

    def _cadences(self) -> tuple[Cadence, Cadence, Cadence]:
        """Of metric lines, evaluations and checkpoints."""
        start, config = self.loop.env_steps, self.config
        eval_every = 0 if self.make_eval_env is None else config.eval_every
        return Cadence(config.log_every, start), Cadence(eval_every, start), Cadence(config.checkpoint_every, start)

    def _finish(self, stopped: bool) -> TrainResult:
        self.signals.saving()
        self._log()
        if self.saver.saved_at != self.loop.env_steps:
            self._save(exact=False, must=True)
        # After the save: a resumed run continues the metric stream from there, as if there had been no evaluation.
        result = None if stopped else self._final_evaluation()
        seconds, steps_per_second = self.clock.seconds(), self.clock.steps_per_second()
        self._update_run_file(status="interrupted" if stopped else "finished", wall_seconds=seconds)
        assert self.saver.last_path is not None  # the first save must succeed
        return TrainResult(
            run_dir=self.run.path,
            checkpoint=self.saver.last_path,
            env_steps=self.loop.env_steps,
            wall_seconds=seconds,
            steps_per_second=steps_per_second,
            evaluation=result,
            interrupted=stopped,
            agent=self.agent,
            failed_saves=self.saver.failures,
        )

    def _log(self) -> None:
        if not self.window.is_empty:
            line = self.window.line()
            failed = {"failed_saves": self.saver.failures} if self.saver.failures else {}
            self.recorder.record(line | self.clock.metrics() | failed | self.crashes.counts())
            self.adviser.look(line)

    def _save(self, *, exact: bool, must: bool = False) -> None:
        self._log()
        if self.saver.save(self.recorder, exact=exact, must=must) is not None:
            self._update_run_file(wall_seconds=self.clock.seconds(), env_steps=self.loop.env_steps)

    def _update_run_file(self, **fields: Any) -> None:
        """run.json is for people and listings: a failure to write it does not end the run."""
        try:
            self.run.update(**fields)
        except CheckpointError as error:
            self.display.note(str(error))

    def _eval_seed(self) -> int:
        return self.loop.streams.seed_for("evaluation", self.loop.env_steps)

    def _evaluate(self, seed: int, *, competes: bool = True) -> EvalResult | None:
        """Evaluate the agent, record the result and keep the best agent; None if a stop signal cut it short."""
        assert self.make_eval_env is not None
        # Losses since the last metric line are not checked yet, and a diverged agent must not become the best one.
        self.window.check()
        result = evaluate(
            self.agent,
            self.make_eval_env,
            episodes=self.config.eval_episodes,
            seed=seed,
            stopped=lambda: self.signals.requested,
        )
        if result is None:
            return None
        self.saver.evaluated_at = self.loop.env_steps
        line = {"kind": "eval", "env_steps": self.loop.env_steps, "eval_seed": seed}
        self.recorder.record(line | {f"eval_{name}": value for name, value in result.summary().items()})
        if competes:
            self.saver.save_best(result.mean_return)
        return result

    def _final_evaluation(self) -> EvalResult | None:
        """The run's result, on the same seeds as `rl-training eval`.

        If the run is evaluated during training, agents compete on other seeds, the last one too: otherwise the result
        would be the best of many looks at the same episodes.
        """
        if self.make_eval_env is None:
            return None
        during_training = self.config.eval_every > 0
        if during_training and self.saver.evaluated_at != self.loop.env_steps:
            self._evaluate(self._eval_seed())
        return self._evaluate(DEFAULT_SEED, competes=not during_training)


def run_session(
    loop: Loop,
    run: RunDirectory,
    signals: StopSignals,
    *,
    env: EnvSource | None,
    eval_env: str | EnvMaker | None,
    callback: Callback | None,
    show: bool | None,
    checkpoint: Checkpoint | None = None,
) -> TrainResult:
    """Build a session, train, and close everything again. An error is reported in the run directory and raised."""
    started, config = time.perf_counter(), loop.config
    agent = Agent(loop.learner, loop.collector.spaces, config)
    start_step = 0 if checkpoint is None else checkpoint.env_steps
    display = ConsoleDisplay(
        config.total_timesteps, f"{config.algo} on {config.env_id}", start_step=start_step, enabled=show
    )
    window = MetricWindow()
    saver = RunSaver(run.path, config, agent.spaces, loop, window, display.note)
    crashes = CrashReports(run.path, config, loop, display.note)
    with contextlib.ExitStack() as stack:
        stack.enter_context(run.lock())
        seconds_before = 0.0
        if checkpoint is not None:
            saver.restore(checkpoint)
            seconds_before = float(run.read_info().get("wall_seconds", 0.0))
        stack.enter_context(limited_threads(int(config.threads)))
        stack.enter_context(display)
        recorder = Recorder(
            run.path,
            tensorboard=config.tensorboard,
            wandb_project=config.wandb_project,
            display=display,
            resume_offset=saver.metrics_offset,
        )
        session = Session(
            config=config,
            run=run,
            loop=loop,
            agent=agent,
            make_eval_env=_eval_env_maker(agent, env, eval_env),
            signals=signals,
            window=window,
            display=display,
            recorder=stack.enter_context(recorder),
            saver=saver,
            crashes=crashes,
            adviser=Adviser(loop.learner, display.note),
            clock=RunClock(loop, started, seconds_before),
        )
        try:
            return session.train(callback, checkpoint)
        except BaseException as error:
            crashes.keep(error)
            # A full disk must not hide the error itself.
            with contextlib.suppress(CheckpointError):
                run.update(status="failed")
            raise


def _eval_env_maker(
    agent: Agent, env: EnvSource | None, eval_env: str | EnvMaker | None
) -> Callable[[], gym.Env[Any, Any]] | None:
    """Makes evaluation environments; None if there is only a vector environment of the caller, which has no copy."""
    if eval_env is not None or env is None:
        return agent.env_maker(eval_env)
    return None if isinstance(env, VectorEnv) else partial(make_env, env, agent.config.evaluation_kwargs)


@contextlib.contextmanager
def open_loop(
    config: TrainConfig,
    env: EnvSource | None,
    eval_env: str | EnvMaker | None,
    signals: StopSignals,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Loop]:
    """The loop of a run on its environments, at step 0. Everything that can be refused is refused here."""
    with training_envs(config, env) as envs:
        spaces = Spaces(envs.single_observation_space, envs.single_action_space)
        if checkpoint is None:
            get_spec(config.algo).check_spaces(spaces, config.env_id)
        else:
            require_stored_spaces(spaces, config.env_id, checkpoint)
        if eval_env is None:
            check_eval_env(config, env, spaces)
        config = resolve_auto(config, spaces, None if envs is env else envs)
        # A rollout that takes too long after a stop signal is dropped.
        yield build_loop(config, envs, spaces, signals.overdue)


def build_loop(
    config: TrainConfig, envs: VectorEnv, spaces: Spaces, overdue: Callable[[], bool] = lambda: False
) -> Loop:
    """The learner of the algorithm on its loop, at step 0."""
    spec, streams = get_spec(config.algo), Streams(config.seed)
    return spec.loop(envs, spaces, spec.learner(spaces, config, streams), config, streams, overdue)
