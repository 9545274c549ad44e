"""Train, resume, evaluate, predict: the one training workflow, for every algorithm.

`resume` is `train` with a checkpoint. Nothing else in the library contains a training loop.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from rl_training.config.loading import load_config, save_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.factory import backend_for_another_env, make_env
from rl_training.envs.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.advice import Adviser
from rl_training.runtime.agent import Agent, keywords_for_another_env, stored_config
from rl_training.runtime.compile_setting import compile_setting_on_resume
from rl_training.runtime.crash_reports import CrashReports
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult, evaluate
from rl_training.runtime.loops import Loop, Progress
from rl_training.runtime.metric_window import MetricWindow
from rl_training.runtime.preparing import (
    EnvMaker,
    EnvSource,
    build_loop,
    check_eval_env,
    default_run_name,
    resolve_auto,
    training_envs,
)
from rl_training.runtime.run_saver import RunSaver
from rl_training.runtime.stop_signals import StopSignals
from rl_training.runtime.threads import limited_threads
from rl_training.runtime.train_result import TrainResult
from rl_training.storage.checkpoints import (
    Checkpoint,
    checkpoint_steps,
    fingerprint,
    fingerprint_differences,
    list_checkpoints,
    load_checkpoint,
    resolve_checkpoint,
    verify_checkpoint,
)
from rl_training.storage.run_directory import RunDirectory, create_run_directory, open_run_directory
from rl_training.telemetry.console import ConsoleDisplay
from rl_training.telemetry.recorder import Recorder

__all__ = ["Callback", "TrainResult", "agent_of", "evaluate_checkpoint", "predict", "resume", "train"]

Callback = Callable[[Progress], bool | None]


def train(
    config: TrainConfig,
    *,
    env: EnvSource | None = None,
    eval_env: EnvMaker | str | None = None,
    callback: Callback | None = None,
    show: bool | None = None,
    initial_learner: dict[str, Any] | None = None,
) -> TrainResult:
    """Run `config` in a new run directory.

    `env` replaces the config's env id by a callable that makes envs, or by a vector env; `callback` sees every
    `Progress` and stops the run by returning False; `show` forces the live display on or off;
    `initial_learner` is a learner's state to start from.
    """
    with training_envs(config, env) as envs:
        spaces = Spaces(envs.single_observation_space, envs.single_action_space)
        get_spec(config.algo).check_spaces(spaces, config.env_id)
        if eval_env is None:
            check_eval_env(config, env, spaces)
        config = resolve_auto(config, spaces, None if envs is env else envs)
        # Everything that can be refused is refused before there is a run directory.
        loop = build_loop(config, envs, spaces)
        if initial_learner is not None:
            loop.learner.load_state_dict(initial_learner)
        run = create_run_directory(
            config.output_dir,
            config.run_name or default_run_name(config),
            algorithm=config.algo,
            env=config.env_id,
            seed=config.seed,
            total_timesteps=config.total_timesteps,
        )
        with StopSignals() as signals:
            save_config(config, run.path / "config.yaml")
            return _Session(config, run, loop, env, eval_env, show, signals).run_to_end(callback)


def resume(
    target: str | Path,
    *,
    total_timesteps: int | None = None,
    output_dir: str | Path = "runs",
    env: EnvSource | None = None,
    eval_env: EnvMaker | str | None = None,
    callback: Callback | None = None,
    show: bool | None = None,
) -> TrainResult:
    """Go on with a run from its newest good checkpoint (or from the one named), in the same run directory."""
    path = resolve_checkpoint(target, output_dir)
    if len(path.parts) < 3:  # named from inside its run directory
        path = path.resolve()
    checkpoint = load_checkpoint(path)
    if checkpoint.kind != "resume":
        raise CheckpointError(f"{path}: holds an agent only; resume the run itself, or load it in Python and learn")
    run = open_run_directory(path.parent.parent)
    checkpoint = replace(checkpoint, skipped=_damaged_after(checkpoint))
    changes: dict[str, Any] = {} if total_timesteps is None else {"total_timesteps": total_timesteps}
    config = compile_setting_on_resume(load_config(stored_config(checkpoint), changes))
    if env is not None and env != config.env_id:
        config = config.model_copy(update={"vector_backend": backend_for_another_env(config.vector_backend)})
    if isinstance(env, str):
        config, env = config.model_copy(update={"env_id": env} | keywords_for_another_env(config)), None
    if config.total_timesteps < checkpoint.env_steps:
        raise ConfigError(
            f"total_timesteps: {config.total_timesteps} is less than the {checkpoint.env_steps} steps already done"
        )
    with StopSignals() as signals, training_envs(config, env) as envs:
        signals.has_checkpoint = True
        spaces = Spaces(envs.single_observation_space, envs.single_action_space)
        if spaces.to_json() != checkpoint.state.get("spaces"):
            raise EnvError(f"{config.env_id} has other spaces now than when {path} was saved")
        if eval_env is None:
            check_eval_env(config, env, spaces)
        config = resolve_auto(config, spaces, None if envs is env else envs)
        loop = build_loop(config, envs, spaces)
        save_config(config, run.path / "config.yaml")
        return _Session(config, run, loop, env, eval_env, show, signals, checkpoint).run_to_end(callback)


def _damaged_after(checkpoint: Checkpoint) -> list[str]:
    """What is wrong with the newer checkpoints of the same run: they make way, so somebody has to be told."""
    paths = list_checkpoints(checkpoint.path.parent.parent, "resume")
    newer = [path for path in paths if checkpoint_steps(path) > checkpoint.env_steps]
    return [problems[0] for path in newer if (problems := verify_checkpoint(path))]


def evaluate_checkpoint(
    target: str | Path,
    *,
    episodes: int = 10,
    seed: int = DEFAULT_SEED,
    deterministic: bool = True,
    env: EnvMaker | str | None = None,
    output_dir: str | Path = "runs",
) -> EvalResult:
    """Evaluate the agent of a checkpoint or run; episode i is reset with `seed` + i."""
    agent = agent_of(target, output_dir)
    spec = get_spec(agent.config.algo)
    with limited_threads(1):
        result: EvalResult = spec.evaluate(agent, episodes=episodes, seed=seed, deterministic=deterministic, env=env)
    return result


def predict(
    target: str | Path, observation: Any, *, deterministic: bool = True, output_dir: str | Path = "runs"
) -> Any:
    """The action of a checkpoint's agent for a raw observation (or a batch), in the env's own units."""
    agent = agent_of(target, output_dir)
    actions, _ = get_spec(agent.config.algo).predict(agent, observation, deterministic=deterministic)
    return actions


def agent_of(target: str | Path, output_dir: str | Path = "runs") -> Agent:
    checkpoint = load_checkpoint(resolve_checkpoint(target, output_dir, segments="skip"))
    agent: Agent = get_spec(checkpoint.algorithm).load(checkpoint)
    return agent


class _Session:
    """One process's work on one run: everything that `run_to_end` needs, put together."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunDirectory,
        loop: Loop,
        env: EnvSource | None,
        eval_env: EnvMaker | str | None,
        show: bool | None,
        signals: StopSignals,
        checkpoint: Checkpoint | None = None,
    ):
        self.config, self.run, self.loop, self.show, self.checkpoint = config, run, loop, show, checkpoint
        self.signals = signals
        loop.collector.overdue = signals.overdue
        spaces = loop.collector.spaces
        self.agent = Agent(loop.learner, spaces, config)
        self.eval_env = eval_env
        if eval_env is None and env is not None and not isinstance(env, VectorEnv):
            self.eval_env = partial(make_env, env, config.evaluation_kwargs)
        self.can_evaluate = self.eval_env is not None or not isinstance(env, VectorEnv)
        self.window = MetricWindow()
        self.saver = RunSaver(run.path, config, spaces, self.loop, self.window)
        self.crashes = CrashReports(run.path, config, loop)
        self.started = time.perf_counter()
        self.seconds_before = 0.0
        self.steps_before = 0

    def run_to_end(self, callback: Callback | None) -> TrainResult:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.run.lock())
            offset = None
            if self.checkpoint is not None:
                self.saver.restore(self.checkpoint)
                offset = self.saver.metrics_offset
                self.seconds_before = float(self.run.read_info().get("wall_seconds", 0.0))
                self.steps_before = self.loop.env_steps
            stack.enter_context(limited_threads(int(self.config.threads)))
            title = f"{self.config.algo} on {self.config.env_id}"
            self.display = ConsoleDisplay(
                self.config.total_timesteps, title, start_step=self.loop.env_steps, enabled=self.show
            )
            stack.enter_context(self.display)
            self.saver.note = self.display.note
            self.adviser = Adviser(self.loop.learner, self.display.note)
            self.recorder = stack.enter_context(
                Recorder(
                    self.run.path,
                    tensorboard=self.config.tensorboard,
                    wandb_project=self.config.wandb_project,
                    display=self.display,
                    resume_offset=offset,
                )
            )
            try:
                return self._train(callback)
            except BaseException as error:
                self.crashes.keep(error)
                # A disk that is full must not hide what really went wrong.
                with contextlib.suppress(CheckpointError):
                    self.run.update(status="failed")
                raise

    def _train(self, callback: Callback | None) -> TrainResult:
        self.run.update(status="running", total_timesteps=self.config.total_timesteps)
        if self.checkpoint is None:
            # The first save proves that path and disk are good before any time is spent.
            self._save(exact=True, must=True)
            self.signals.has_checkpoint = True
        else:
            self._tell_about(self.checkpoint)
            self.loop.restart_envs()
        stopped = False
        previous = self.loop.env_steps
        cadences = (self.config.log_every, self.config.eval_every, self.config.checkpoint_every)
        next_due = _next_due(cadences, previous)
        for progress in self.loop:
            self.window.add(progress)
            self.crashes.look(self.display.note)
            self.display.update(progress.env_steps)
            now = progress.env_steps
            if now >= next_due:
                if _due(self.config.log_every, previous, now):
                    self._log()
                if _due(self.config.eval_every, previous, now):
                    self._evaluate(self.loop.streams.seed_for("evaluation", now))
                    if self.signals.requested:
                        # Its line may be missing: what is saved from here on is not what an uninterrupted run has.
                        stopped = now < self.config.total_timesteps
                        break
                if _due(self.config.checkpoint_every, previous, now):
                    self._save(exact=True)
                    self.loop.restart_envs()
                previous, next_due = now, _next_due(cadences, now)
            if self.signals.requested or (callback is not None and callback(progress) is False):
                stopped = now < self.config.total_timesteps
                break
        return self._finish(stopped or self.loop.dropped)

    def _finish(self, stopped: bool) -> TrainResult:
        self.signals.saving()
        self._log()
        if self.saver.saved_at != self.loop.env_steps:
            self._save(exact=False, must=True)
        # After the save: a resumed run takes the metric stream up from there, as if this had not been looked at.
        final = None if stopped else self._final_evaluation()
        seconds = self._seconds()
        self._tell_the_run(status="interrupted" if stopped else "finished", wall_seconds=seconds)
        steps_here = self.loop.env_steps - self.steps_before
        return TrainResult(
            run_dir=self.run.path,
            checkpoint=self.last_checkpoint,
            env_steps=self.loop.env_steps,
            wall_seconds=seconds,
            steps_per_second=steps_here / max(seconds - self.seconds_before, 1e-9),
            evaluation=final,
            interrupted=stopped,
            agent=self.agent,
            failed_saves=self.saver.failures,
        )

    def _log(self) -> None:
        if not self.window.is_empty:
            line = self.window.line()
            failed = {"failed_saves": self.saver.failures} if self.saver.failures else {}
            self.recorder.record(line | self._wall_clock() | failed | self.crashes.counts())
            self.adviser.look(line)

    def _evaluate(self, seed: int, *, competes: bool = True) -> EvalResult | None:
        if not self.can_evaluate:
            return None
        # Between two lines nobody has looked at the losses: what has diverged must not become the best agent.
        self.window.check()
        maker = self.agent.env_maker(self.eval_env)
        result = evaluate(
            self.agent.learner,
            self.agent.spaces,
            maker,
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
        """The run's result, on the seeds that `eval` uses too. Where a run is evaluated on the way, agents compete
        on other seeds (or the result would be the best of many looks at the same episodes), and so does the last."""
        on_the_way = self.config.eval_every > 0
        if on_the_way and self.saver.evaluated_at != self.loop.env_steps:
            self._evaluate(self.loop.streams.seed_for("evaluation", self.loop.env_steps))
        return self._evaluate(DEFAULT_SEED, competes=not on_the_way)

    def _save(self, *, exact: bool, must: bool = False) -> None:
        self._log()
        path = self.saver.save(self.recorder, exact=exact, must=must)
        if path is not None:
            self.last_checkpoint = path
            self._tell_the_run(wall_seconds=self._seconds(), env_steps=self.loop.env_steps)

    def _tell_the_run(self, **fields: Any) -> None:
        """What run.json says is for people and listings: not worth a run."""
        try:
            self.run.update(**fields)
        except CheckpointError as error:
            self.display.note(str(error))

    def _tell_about(self, checkpoint: Checkpoint) -> None:
        self.last_checkpoint = checkpoint.path
        for reason in checkpoint.skipped:
            self.display.note(f"passed over a damaged checkpoint: {reason}")
        changed = fingerprint_differences(checkpoint.fingerprint, fingerprint())
        if changed:
            self.display.note(f"continuing, but not bit for bit: {', '.join(changed)}")

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.started

    def _wall_clock(self) -> dict[str, float]:
        elapsed = time.perf_counter() - self.started
        collector = self.loop.collector
        shares = {
            "time_env": collector.seconds_env / elapsed,
            "time_act": collector.seconds_acting / elapsed,
            "time_learn": self.loop.seconds_learning / elapsed,
        }
        return {
            "wall_seconds": self._seconds(),
            "steps_per_second": (self.loop.env_steps - self.steps_before) / elapsed,
            **shares,
            "time_other": max(0.0, 1.0 - sum(shares.values())),
        }


def _next_due(cadences: Iterable[int], now: int) -> float:
    return min(((now // every + 1) * every for every in cadences if every > 0), default=math.inf)


def _due(every: int, previous: int, now: int) -> bool:
    """Whether a multiple of `every` was reached or passed since `previous`. 0 is never."""
    return every > 0 and now // every > previous // every
