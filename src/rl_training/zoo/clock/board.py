"""A board: tasks, and the sides that are timed on each. Read from YAML and fully validated."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from rl_training.config import yaml_text
from rl_training.config.base import StrictModel
from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED
from rl_training.config.loading import list_presets, load_config, shown_path
from rl_training.config.messages import printable
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.zoo.manifest import CLOCK, checked, zoo_folder

OURS = "ours"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")  # of a board, task, side or worker; it is also a file name


class WorkerText(StrictModel):
    """The program that trains with another library, and the environment that it runs in."""

    title: str = Field(min_length=1, description="Name of the library.")
    script: str = Field(min_length=1, description="Program in the directory benchmarks of a checkout.")
    python: str = Field(min_length=1, description="Virtual environment, relative to the checkout.")
    setup: str = Field(min_length=1, description="Command that makes the environment.")


class SideText(StrictModel):
    """What is timed: a preset of this library, or a worker with its settings."""

    title: str = Field(min_length=1, description="Name in tables and pictures.")
    config: str | None = Field(None, description="Preset of this library, or a file next to the board.")
    set: dict[str, Any] = Field({}, description="Settings that differ from the preset.")
    worker: str | None = Field(None, description="Library of the side: a key of `workers`.")
    settings: dict[str, Any] = Field({}, description="Settings for the worker.")
    same_as: str | None = Field(None, description="Side of the same task whose settings it shares.")
    threads: int | None = Field(None, ge=1, description="Threads of the worker; null leaves that to the library.")


class TaskText(StrictModel):
    """An environment, when it is solved and how long a run may take."""

    env: str = Field(min_length=1, description="Env id, for training and evaluation.")
    own_env: str | None = Field(None, description="Env id in presets of this library, if it has another name there.")
    threshold: float | None = Field(None, description="Mean return of an evaluation that counts as solved.")
    every: int | None = Field(None, ge=1, description="Env steps between evaluations.")
    budget: float | None = Field(None, gt=0, description="Seconds after which a run counts as not solved.")
    episodes: int | None = Field(None, ge=1, description="Episodes of an evaluation, if not those of the board.")
    first_episodes: int | None = Field(None, ge=1, description="As in the board.")
    long: bool = Field(False, description="Takes hours; runs only on request.")
    note: str = Field("", description="Remark that is printed below the table.")
    sides: dict[str, Any] = Field(min_length=1, description="Name -> side.")


class BoardText(StrictModel):
    """The contents of a file."""

    title: str = Field(min_length=1, description="Title of the table.")
    about: str = Field("", description="A sentence or two below the title.")
    seeds: int = Field(5, ge=1, le=1000, description="Number of seeds per side.")
    episodes: int = Field(ge=1, description="Episodes of an evaluation, with reset seeds from 10000.")
    first_episodes: int | None = Field(
        None, ge=1, description="Episodes that come first; the others are played if these reach the threshold."
    )
    minutes: list[float] | None = Field(
        None, min_length=1, description="Times of the evaluations of a board of scores."
    )
    workers: dict[str, Any] = Field({}, description="Name -> worker.")
    tasks: dict[str, Any] = Field(min_length=1, description="Name -> task.")


@dataclass(frozen=True)
class Side:
    name: str
    text: SideText
    preset: TrainConfig | None  # of our sides
    source: str | None  # of the preset: its name or absolute path
    worker: WorkerText | None  # of the others

    @property
    def library(self) -> str:
        return OURS if self.text.worker is None else self.text.worker

    @property
    def title(self) -> str:
        return self.text.title


@dataclass(frozen=True)
class Task:
    """`minutes` makes it a task of scores; otherwise it has a threshold, an interval and a budget."""

    board: str
    name: str
    text: TaskText
    sides: tuple[Side, ...]
    rule: Mapping[str, Any]  # of the evaluations; a part of every request

    @property
    def minutes(self) -> tuple[float, ...]:
        return tuple(self.rule["minutes"] or ())

    @property
    def limit(self) -> float:
        """Seconds of the longest run."""
        return 60.0 * max(self.minutes) if self.minutes else float(self.rule["budget"])

    def with_sides(self, sides: Sequence[Side]) -> Task:
        return replace(self, sides=tuple(sides))

    def with_budget(self, seconds: float) -> Task:
        return replace(self, rule={**self.rule, "budget": seconds})

    def with_minutes(self, longest: float) -> Task:
        """End the runs at this minute, which is evaluated in any case."""
        kept = [minutes for minutes in self.minutes if minutes < longest]
        return replace(self, rule={**self.rule, "minutes": [*kept, longest]})


@dataclass(frozen=True)
class Board:
    name: str
    title: str
    about: str
    seeds: int
    minutes: tuple[float, ...]
    workers: Mapping[str, WorkerText]
    tasks: tuple[Task, ...]

    def select(self, only: Sequence[str], sides: Sequence[str], *, long: bool) -> tuple[Task, ...]:
        """Tasks by name, with the sides that are named, or whose library is. A long task needs `long` or its name."""
        _refuse_unknown("--only", only, {task.name for task in self.tasks}, f"no such task in {self.name}")
        known = {word for task in self.tasks for side in task.sides for word in (side.name, side.library)}
        _refuse_unknown("--side", sides, known, f"no such side in {self.name}")
        chosen = []
        for task in self.tasks:
            kept = tuple(side for side in task.sides if not sides or {side.name, side.library} & set(sides))
            if kept and (task.name in only or (not only and (long or not task.text.long))):
                chosen.append(task.with_sides(kept))
        if not chosen:
            words = [*(f"--only {word}" for word in only), *(f"--side {word}" for word in sides)]
            hint = "add --long" if not only else "that task does not have that side"
            raise ConfigError(f"{' '.join(words) or self.name}: nothing is left to run, {hint}")
        return tuple(chosen)


def _refuse_unknown(option: str, words: Iterable[str], known: set[str], problem: str) -> None:
    for word in words:
        if word not in known:
            close = difflib.get_close_matches(word, sorted(known), n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(known))}"
            raise ConfigError(f"{option} {printable(word, quoted=False)}: {problem}, {hint}")


def list_boards() -> list[str]:
    return sorted(path.stem for path in (zoo_folder() / CLOCK).glob("*.yaml"))


def load_board(source: str | Path) -> Board:
    """Load a packaged board by name, or a file, with all presets."""
    path, shown = _find(str(source))
    text: BoardText = checked(BoardText, yaml_text.read_file(path, shown).data, shown)
    name = _name(path.stem, f"{shown}: its name")
    minutes = text.minutes
    if minutes is not None and (min(minutes) <= 0 or sorted(set(minutes)) != minutes):
        raise ConfigError(f"{shown}: minutes: {printable(minutes)} must be above 0 and rise")
    workers = {
        _name(key, f"{shown}, worker"): checked(WorkerText, raw, f"{shown}, worker {printable(key, quoted=False)}")
        for key, raw in text.workers.items()
    }
    if OURS in workers:
        raise ConfigError(f"{shown}: workers: {OURS} is this library, choose another name")
    tasks = tuple(_task(key, raw, text, name, workers, path, shown) for key, raw in text.tasks.items())
    return Board(name, text.title, text.about, text.seeds, tuple(minutes or ()), workers, tasks)


def _find(text: str) -> tuple[Path, str]:
    """The file of a board, and its name in error messages."""
    shown = shown_path(text)
    if text.endswith((".yaml", ".yml")) and os.path.isfile(text):
        return Path(text), shown
    names = list_boards()
    if text in names:
        return zoo_folder() / CLOCK / f"{text}.yaml", shown
    close = difflib.get_close_matches(text, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the packaged ones are {', '.join(names)}"
    raise ConfigError(f"{shown}: no such board, {hint}")


def _task(
    key: Any, raw: Any, board: BoardText, name: str, workers: Mapping[str, WorkerText], path: Path, shown: str
) -> Task:
    where = f"{shown}, task {printable(key, quoted=False)}"
    text: TaskText = checked(TaskText, raw, where)
    needed = ("threshold", "every", "budget")
    for word in needed:
        if (getattr(text, word) is None) != (board.minutes is not None):
            problem = "does not fit a board with minutes, remove it" if board.minutes else "missing"
            raise ConfigError(f"{where}: {word}: {problem}; a board has either minutes, or {', '.join(needed)}")
    first = text.first_episodes or board.first_episodes
    episodes = text.episodes or board.episodes
    if first is not None and (first > episodes or board.minutes is not None):
        raise ConfigError(f"{where}: first_episodes: {first} needs a threshold, and at least as many episodes")
    shared = {key: each.get("settings", {}) for key, each in text.sides.items() if isinstance(each, dict)}
    sides = tuple(_side(side, each, shared, workers, path, f"{where}, side") for side, each in text.sides.items())
    expected = text.own_env or text.env
    for side in sides:
        if side.preset is not None and side.preset.env_id != expected:
            raise ConfigError(
                f"{where}, side {side.name}: env_id: {printable(side.preset.env_id, quoted=False)} is not {expected}, "
                "choose another preset, or name the id of presets in own_env"
            )
    rule = {
        "env": text.env,
        "threshold": text.threshold,
        "every": text.every,
        "budget": text.budget,
        "minutes": board.minutes,
        "episodes": episodes,
        "first_episodes": first,
        "first_seed": FIRST_EVAL_SEED,
    }
    return Task(name, _name(key, f"{shown}, task"), text, sides, rule)


def _side(
    key: Any, raw: Any, shared: Mapping[str, Any], workers: Mapping[str, WorkerText], path: Path, where: str
) -> Side:
    """`shared` has the settings of all sides of the task."""
    where = f"{where} {printable(key, quoted=False)}"
    text: SideText = checked(SideText, raw, where)
    name = _name(key, where)
    if text.same_as is not None:
        if text.settings or not shared.get(text.same_as):
            raise ConfigError(
                f"{where}: same_as: {printable(text.same_as)} must be a side with settings, instead of own ones"
            )
        text = text.model_copy(update={"settings": shared[text.same_as]})
    if (text.config is None) == (text.worker is None):
        raise ConfigError(f"{where}: needs either config, a preset of this library, or worker, another library")
    if text.worker is not None:
        if text.worker not in workers:
            known = ", ".join(workers) or "none"
            raise ConfigError(f"{where}: worker {printable(text.worker)} is not defined, workers has {known}")
        if text.set:
            raise ConfigError(f"{where}: set: is for presets of this library, a worker has settings")
        return Side(name, text, None, None, workers[text.worker])
    if text.settings or text.threads is not None:
        word = "settings" if text.settings else "threads"
        raise ConfigError(f"{where}: {word}: is for workers, a preset of this library has `set`")
    assert text.config is not None
    source = _preset_source(text.config, path, where)
    try:
        preset = load_config(source, text.set)
    except ConfigError as error:
        raise ConfigError(f"{where}: config: {error}") from None
    return Side(name, text, preset, source, None)


def _preset_source(config: str, path: Path, where: str) -> str:
    """A file next to the board, or the name of a packaged preset."""
    neighbor = path.parent / config
    if config.endswith((".yaml", ".yml")) and os.path.isfile(neighbor):
        return str(neighbor.resolve())
    presets = list_presets()
    if config in presets:
        return config
    close = difflib.get_close_matches(config, presets, n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    raise ConfigError(
        f"{where}: config: {shown_path(config)}: no such preset, and no such file next to the board{hint}"
    )


def _name(key: Any, where: str) -> str:
    if not isinstance(key, str) or not NAME.fullmatch(key):
        raise ConfigError(
            f"{where} {printable(key)}: must be 1 to 40 small letters, digits, '-' or '_', and start with a letter or "
            "digit"
        )
    return key
