"""Callbacks: code of the user that watches a run, logs numbers of its own and may stop it.

A `Callback` has six hooks. Each gets the `RunContext`, and may return False to stop the run. `Hooks` is the list of the
callbacks of one session. A callback never changes the numbers of a training: it has no part in the random streams.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym

from rl_training.config.messages import printable
from rl_training.errors import ConfigError, raise_interrupts
from rl_training.runtime.callbacks.callback_entry import HOOKS, CallbackEntry, answers_false
from rl_training.runtime.collection.info_numbers import as_number
from rl_training.runtime.collection.steps import Episode
from rl_training.runtime.episode_video import Recording, RecordingStopped, check_rendering, record
from rl_training.runtime.evaluation import DEFAULT_SEED, EvalResult
from rl_training.runtime.loops import Loop, Progress
from rl_training.storage.run_directory import RunDirectory
from rl_training.telemetry.metric_lines import INFO_PREFIX, MACHINE_FIELDS
from rl_training.text import describe_error, one_line

if TYPE_CHECKING:
    from rl_training.runtime.agent import Agent

Status = Literal["running", "finished", "interrupted", "failed"]
_LOG_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_OURS = MACHINE_FIELDS | {"kind", "env_steps", "updates", "episodes", "mean_return", "mean_length"}
_OUR_PREFIXES = (INFO_PREFIX, "eval_", "time_")
_HOOKS_THAT_LOG = ("on_round", "on_episode", "on_evaluation")
MOST_LOG_NAMES = 100


class Callback:
    """Base of callbacks: override the hooks that you need.

    A hook returns None or True to continue, or False to stop the run, which is then finished. A callback with the
    methods `state_dict` and `load_state_dict` is saved in every checkpoint and restored before `on_start`.
    """

    def on_start(self, context: RunContext) -> bool | None:
        """Called once in each process that works on the run, also after a resume, before the first round."""
        return None

    def on_round(self, context: RunContext) -> bool | None:
        """Called after each round: a rollout and its update, or one step of every env of a replay algorithm."""
        return None

    def on_episode(self, context: RunContext) -> bool | None:
        """Called for each episode that ended in a round, before `on_round`; `context.episode` is the episode."""
        return None

    def on_evaluation(self, context: RunContext) -> bool | None:
        """Called after each evaluation, before its metric line; `context.evaluation` is its result."""
        return None

    def on_checkpoint(self, context: RunContext) -> bool | None:
        """Called after each save; `context.checkpoint` is its path. Changes made here are not in that checkpoint."""
        return None

    def on_end(self, context: RunContext) -> bool | None:
        """Called at the end of each process that works on the run, also after an error; see `context.status`."""
        return None


@dataclass(frozen=True)
class Surroundings:
    """What a context needs beside the run itself."""

    make_drawing_env: Callable[[], gym.Env[Any, Any]] | None  # None: there is no environment for evaluation
    stopped: Callable[[], bool]  # whether a signal asks the run to stop
    note: Callable[[str], None]


class RunContext:
    """What a hook may see of the run, and do to it. All attributes are for reading."""

    def __init__(self, agent: Agent, run: RunDirectory, loop: Loop, hooks: Hooks, surroundings: Surroundings):
        self.config, self.agent, self.run_dir = loop.config, agent, run.path
        self.progress: Progress | None = None  # of the last round
        self.episode: Episode | None = None  # in on_episode: the episode
        self.evaluation: EvalResult | None = None  # the last one
        self.evaluated_at: int | None = None  # its env step
        self.checkpoint: Path | None = None  # the last one
        self.status: Status = "running"
        self.error: BaseException | None = None  # what ended the run, in on_end
        self._run, self._loop, self._hooks, self._around = run, loop, hooks, surroundings

    @property
    def env_steps(self) -> int:
        """Environment steps of the run so far."""
        return self._loop.env_steps

    @property
    def updates(self) -> int:
        return self._loop.learner.updates

    @property
    def stop_reason(self) -> str | None:
        """Why the run stops by itself, if it does."""
        return self._hooks.stop_reason

    def log(self, name: str, value: Any) -> None:
        """Log a number. It goes to the metric stream, and so to every sink.

        In `on_round` and `on_episode` the next train line has the mean of all values since the last line. In
        `on_evaluation` the line of the evaluation has the value as `eval_<name>`. Other hooks cannot log, because a
        resumed run would lack the value.
        """
        self._hooks.log(name, value)

    def note(self, text: str) -> None:
        """Print one line above the display of the run."""
        self._around.note(text)

    def record_video(self, *, episodes: int = 1, seed: int = DEFAULT_SEED) -> Recording | None:
        """Play episodes on an evaluation environment and write `videos/step-....gif`; None if the run must stop.

        The training is not affected. The package `pillow` and an environment that can draw are needed.
        """
        path = self._run.folder("videos") / f"step-{self.env_steps:012d}.gif"
        with contextlib.suppress(RecordingStopped):
            return record(
                self.agent,
                self._drawing_env(),
                path,
                episodes=episodes,
                seed=seed,
                name=self.config.env_id,
                stopped=self._around.stopped,
            )
        return None

    def check_video(self) -> None:
        """ConfigError or EnvError if `record_video` cannot work here."""
        check_rendering(self._drawing_env())

    def _drawing_env(self) -> Callable[[], gym.Env[Any, Any]]:
        if self._around.make_drawing_env is None:
            raise ConfigError("there is no environment to record: pass eval_env", key="record_every")
        return self._around.make_drawing_env

    def stop(self, reason: str = "") -> None:
        """Stop the run after this round. It is saved, evaluated and finished; `reason` is shown to the user."""
        self._hooks.stop(reason, self.env_steps)


class Hooks:
    """The callbacks of one session. A callback whose hook raises is turned off; the run continues without it."""

    def __init__(
        self,
        callbacks: Sequence[tuple[str, Any]] = (),
        functions: Sequence[Callable[[Progress], Any]] = (),
        tell: Callable[[str], None] = lambda text: None,
    ):
        self.functions = tuple(functions)
        self.entries = [CallbackEntry(name, callback) for name, callback in callbacks]
        self.failures: list[str] = []
        self.stop_reason: str | None = None
        self._is_closed = False
        self.ignore_stops_until = 0  # a resumed run goes past the step at which it had stopped by itself
        self._tell = tell
        self._context: RunContext | None = None
        self._running: tuple[CallbackEntry, str] | None = None
        self._logged: dict[str, tuple[float, int]] = {}  # sum and number of the values since the last line
        self._told: set[str] = set()
        self._good_names: set[str] = set()  # checked already: a callback may log in every round
        self._strange_states: dict[str, Any] = {}
        by_hook = {hook: [entry for entry in self.entries if hook in entry.hooks] for hook in HOOKS}
        self._by_hook = by_hook
        self.watches_rounds = bool(by_hook["on_round"] or by_hook["on_episode"])

    def attach(self, context: RunContext) -> None:
        self._context = context

    @property
    def context(self) -> RunContext:
        assert self._context is not None
        return self._context

    def round(self, progress: Progress) -> None:
        """Call `on_episode` for each episode of the round, then `on_round`."""
        context = self.context
        context.progress = progress
        if self._by_hook["on_episode"]:
            for context.episode in progress.episodes:
                self._run("on_episode")
            context.episode = None
        self._run("on_round")

    def evaluation(self, result: EvalResult) -> dict[str, float]:
        """Call `on_evaluation`; returns the numbers that were logged there, for the metric line."""
        waiting, self._logged = self._logged, {}
        self.context.evaluation, self.context.evaluated_at = result, self.context.env_steps
        self._run("on_evaluation")
        logged = self.take_logged({})
        self._logged = waiting
        return {f"eval_{name}": value for name, value in logged.items()}

    def start(self) -> None:
        self._run("on_start")

    def saved(self, path: Path) -> None:
        self.context.checkpoint = path
        self._run("on_checkpoint")

    def end(self, status: Status, error: BaseException | None = None) -> None:
        """Call `on_end`, once."""
        if self._context is not None and self._context.status == "running":
            self._context.status, self._context.error = status, error
            self._run("on_end")

    def stop(self, reason: str, env_steps: int) -> None:
        if self._is_closed or self.stop_reason is not None:
            return
        if env_steps > self.ignore_stops_until:
            who = self._running[0].name if self._running is not None else "the program"
            self.stop_reason = one_line(reason, 300) or f"stopped by {who}"

    def close(self, stop_reason: str | None) -> None:
        """Training is over, for this reason; the evaluations that follow cannot stop it any more."""
        self._is_closed, self.stop_reason = True, stop_reason

    def log(self, name: str, value: Any) -> None:
        hook = self._running[1] if self._running is not None else None
        if hook not in _HOOKS_THAT_LOG:
            raise ConfigError(f"context.log: works in {', '.join(_HOOKS_THAT_LOG)}, not in {hook or 'other code'}")
        if not (isinstance(name, str) and name in self._good_names):
            self._check_name(name)
            self._good_names.add(name)
        number = as_number(value)
        if number is None:
            raise ConfigError(f"context.log: {name} is {printable(value)}, expected a number")
        if not math.isfinite(number):
            self._tell_once(f"{name} finite", f"{self._who()}: {name} is {number}; such values are left out")
            return
        if name not in self._logged and len(self._logged) >= MOST_LOG_NAMES:
            raise ConfigError(f"context.log: {name} is one name too many, at most {MOST_LOG_NAMES} can be logged")
        total, count = self._logged.get(name, (0.0, 0))
        self._logged[name] = total + number, count + 1

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str) or not _LOG_NAME.fullmatch(name):
            raise ConfigError(
                f"context.log: {printable(name)} is not a name, expected a small letter, then small letters, digits "
                "and underscores"
            )
        if name in _OURS or name.startswith(_OUR_PREFIXES):
            raise ConfigError(f"context.log: the name {name} belongs to the library, choose another one")

    def take_logged(self, line: Mapping[str, Any]) -> dict[str, float]:
        """The mean of the values of each name since the last call, without names that `line` has already."""
        logged, self._logged = self._logged, {}
        for name in logged.keys() & line.keys():
            del logged[name]
            self._tell_once(f"{name} ours", f"callbacks: {name} is a metric of the algorithm; log it by another name")
        return {name: total / count for name, (total, count) in logged.items()}

    def _run(self, hook: str) -> None:
        for entry in self._by_hook[hook]:
            if entry.is_off:
                continue
            self._running = entry, hook
            try:
                if answers_false(entry.hooks[hook](self._context)):
                    self.stop(f"{entry.name}.{hook} returned False", self.context.env_steps)
            except BaseException as error:
                raise_interrupts(error)
                self._failed(entry, hook, error)
            finally:
                self._running = None

    def _failed(self, entry: CallbackEntry, hook: str, error: BaseException) -> None:
        what = f"callback {entry.name}: {hook} failed at step {self.context.env_steps:,}{entry.place_of(error)}"
        if hook == "on_start":  # nothing is lost yet, and the user is still there
            raise ConfigError(f"{what}: {describe_error(error)}") from error
        entry.is_off = True
        line = f"{what}, so it is off from now on and the run continues without it: {describe_error(error)}"
        self.failures.append(line)
        self._tell(line)

    def _who(self) -> str:
        return f"callback {self._running[0].name}" if self._running is not None else "callbacks"

    def _tell_once(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._tell(text)

    def state_dict(self) -> dict[str, Any]:
        """The states of the callbacks that have one, and the last evaluation; empty without callbacks."""
        states = dict(self._strange_states)
        for entry in self.entries:
            try:
                state = entry.state()
            except BaseException as error:
                raise_interrupts(error)
                self._failed(entry, "state_dict", error)
                state = entry.last_state
            if state is not None:
                states[entry.name] = state
        saved: dict[str, Any] = {"states": states} if states else {}
        if self.entries and self.context.evaluation is not None:
            evaluation = self.context.evaluation
            saved["evaluation"] = {
                "returns": list(evaluation.returns),
                "lengths": list(evaluation.lengths),
                "cut_episodes": evaluation.cut_episodes,
                "infos": [dict(info) for info in evaluation.infos],
                "env_steps": self.context.evaluated_at,
            }
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states = dict(state.get("states", {}))
        for entry in self.entries:
            if entry.name in states:
                entry.restore(states.pop(entry.name))
        # Of callbacks that are not part of this session: they may be of a later one.
        self._strange_states = states
        result = state.get("evaluation")
        if result is not None:
            infos = [{str(name): float(value) for name, value in info.items()} for info in result["infos"]]
            self.context.evaluation = EvalResult(
                tuple(map(float, result["returns"])),
                tuple(map(int, result["lengths"])),
                int(result["cut_episodes"]),
                tuple(infos),
            )
            self.context.evaluated_at = int(result["env_steps"])
