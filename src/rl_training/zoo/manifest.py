"""What a benchmark holds: rows of preset, budget, bar and reference, read from a manifest and checked whole."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rl_training.config import yaml_text
from rl_training.config.base import StrictModel
from rl_training.config.loading import list_presets, load_config, shown_path
from rl_training.config.messages import describe_field, printable
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.zoo.published import CurveText, PublishedCurve, checked_curve

MAIN = "benchmark"
PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
ROW_NAME = re.compile(rf"{PART}(/{PART})*")  # also the path of files that are kept of a row, so no part is `..`
LONGEST_NAME = 50  # with a seed behind it, it has to fit into a run's name


class Row(StrictModel):
    """One preset and what it has to reach."""

    config: str = Field(min_length=1, description="Path of the preset, such as configs/ppo/cartpole.yaml.")
    name: str | None = Field(None, min_length=1, description="Name of the row; null is the preset's.")
    budget: int = Field(ge=1, description="Env steps that the preset may use.")
    floor: float | None = Field(None, description="What four of five seeds have to reach.")
    bar: float | None = Field(None, description="What the median seed has to reach.")
    must_stay_below: float | None = Field(None, description="Instead of floor and bar: no seed may pass it.")
    reference: float | None = Field(None, description="Published or measured score to compare with; null is none.")
    reference_steps: int | None = Field(None, ge=1, description="Env steps of the reference; the budget, unless said.")
    source: str = Field(min_length=1, description="Where the reference comes from.")
    protocol: str = Field(min_length=1, description="How the reference was measured: a key of `protocols`.")
    curve: str | None = Field(None, description="Published learning curve: a key of `curves`; null is none.")
    note: str = Field("", description="What has to be known about the row, below the table.")
    long: bool = Field(False, description="Takes hours: run only when asked for.")


class ManifestText(StrictModel):
    """The file as it is written; a row may also be the name of a file that holds it."""

    title: str = Field(min_length=1, description="Head of the table.")
    about: str = Field("", description="A sentence or two below the title.")
    protocols: dict[str, str] = Field(description="Name -> how scores were measured.")
    curves: dict[str, Any] = Field({}, description="Name -> a published learning curve.")
    rows: list[Any] = Field(min_length=1, description="Rows, or names of files with one each.")


@dataclass(frozen=True)
class Entry:
    """A row with its preset loaded: all that a run, a table and a plot need."""

    row: Row
    name: str
    preset: TrainConfig
    published: PublishedCurve | None = None

    @property
    def algorithm(self) -> str:
        return self.preset.algo

    @property
    def run_prefix(self) -> str:
        """What the names of its run directories begin with."""
        return self.name.replace("/", "-")

    @cached_property
    def environment(self) -> str:
        """The env as people name it: its id, and what was changed about it."""
        kwargs = self.preset.env_kwargs
        words = [word for key, word in (("continuous", "continuous"), ("mask_velocity", "masked")) if kwargs.get(key)]
        return self.preset.env_id + (f" ({', '.join(words)})" if words else "")

    @property
    def threshold(self) -> float | None:
        """What counts as having learned the task; a control has none to reach."""
        return self.row.floor


@dataclass(frozen=True)
class Manifest:
    name: str
    title: str
    about: str
    protocols: dict[str, str]
    entries: tuple[Entry, ...]
    curves: dict[str, PublishedCurve]

    def select(self, only: Sequence[str] = (), *, long: bool = False) -> tuple[Entry, ...]:
        """The rows that were asked for: by name, algorithm or last word. A long one has to be named, or `long` said."""
        for word in only:
            if not any(word in _words(entry) for entry in self.entries):
                known = sorted({known for entry in self.entries for known in _words(entry)})
                close = difflib.get_close_matches(word, known, n=1)
                short = [name for name in known if "/" not in name] or known
                hint = f", did you mean {close[0]}?" if close else f"; it has {', '.join(short)}"
                raise ConfigError(f"--only {printable(word, quoted=False)}: no such row in {self.name}{hint}")
        chosen = [entry for entry in self.entries if not only or _words(entry) & set(only)]
        return tuple(entry for entry in chosen if long or not entry.row.long or entry.name in only)


def _words(entry: Entry) -> set[str]:
    return {entry.name, entry.algorithm, entry.name.rpartition("/")[2]}


def zoo_folder() -> Path:
    return Path(str(files("rl_training") / "assets" / "zoo"))


def list_manifests() -> list[str]:
    """Names of the packaged manifests, sorted."""
    return sorted(path.parent.name for path in zoo_folder().glob(f"*/{MAIN}.yaml"))


def list_single_rows() -> list[str]:
    """Names of the packaged files that hold one row each, sorted."""
    folder = zoo_folder()
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.yaml") if path.stem != MAIN
    )


def load_manifest(source: str | Path) -> Manifest:
    """A packaged manifest (`classic`, `zoo/atari/benchmark.yaml`) or a file; presets are loaded and checked here."""
    path, name = _find(str(source))
    document = yaml_text.read_file(path, name)
    if "rows" not in document.data and "config" in document.data:
        # The file of one row is a manifest of its own, with the words of the benchmark beside it.
        beside = path.with_name(f"{MAIN}.yaml")
        whole = load_manifest(beside) if beside.is_file() else None
        protocols, curves = (whole.protocols, whole.curves) if whole is not None else (None, {})
        entry = _entry(document.data, path, name, protocols, curves)
        title = f"{entry.algorithm} on {entry.environment}"
        return Manifest(entry.run_prefix, title, "", protocols or {}, (entry,), curves)
    text = _checked(ManifestText, document.data, name)
    curves = {key: _curve(str(key), raw, name, text.protocols) for key, raw in text.curves.items()}
    entries = []
    for number, raw in enumerate(text.rows, start=1):
        home, where = path, f"{name}, row {number}"
        if isinstance(raw, str):
            home, where = path.parent / raw, f"{name}, row {number} ({printable(raw, quoted=False)})"
            if not os.path.isfile(home):
                raise ConfigError(f"{where}: cannot be read, there is no such file beside the manifest")
            raw = yaml_text.read_file(home, where).data
        entries.append(_entry(raw, home, where, text.protocols, curves))
    seen: dict[str, str] = {}
    for number, entry in enumerate(entries, start=1):
        if (other := seen.get(entry.run_prefix)) is not None:
            problem = "appears twice" if other == entry.name else f"has the same run directories as {other}"
            raise ConfigError(f"{name}, row {number}: {entry.name} {problem}, give one of them another name")
        seen[entry.run_prefix] = entry.name
    short = path.resolve().parent.name if path.stem == MAIN else path.stem
    return Manifest(short, text.title, text.about, text.protocols, tuple(entries), curves)


def _find(text: str) -> tuple[Path, str]:
    """The file of a manifest, and how errors call it."""
    shown = shown_path(text)
    if text.endswith((".yaml", ".yml")) and os.path.isfile(text):
        return Path(text), shown
    inside = text.replace("\\", "/").removeprefix("./").removeprefix("zoo/").removesuffix(".yaml")
    for name in (f"{inside}.yaml", f"{inside}/{MAIN}.yaml"):
        path = zoo_folder() / name
        if ".." not in Path(name).parts and path.is_file():
            return path, shown
    names = list_manifests()
    close = difflib.get_close_matches(inside, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the packaged ones are {', '.join(names)}"
    raise ConfigError(f"{shown}: no such manifest, {hint}")


def _curve(key: str, raw: Any, name: str, protocols: dict[str, str]) -> PublishedCurve:
    where = f"{name}, curve {printable(key, quoted=False)}"
    text = _checked(CurveText, raw, where)
    _check_protocol(text.protocol, where, protocols)
    return checked_curve(key, text, where)


def _check_protocol(protocol: str, where: str, protocols: dict[str, str]) -> None:
    if protocol not in protocols:
        raise ConfigError(f"{where}: protocol {protocol!r} is not described, protocols has {', '.join(protocols)}")


def _entry(
    raw: Any, home: Path, where: str, protocols: dict[str, str] | None, curves: dict[str, PublishedCurve]
) -> Entry:
    row = _checked(Row, raw, where)
    if (row.must_stay_below is None) == (row.floor is None and row.bar is None):
        raise ConfigError(f"{where}: give either floor and bar, or must_stay_below for a control")
    if row.must_stay_below is None and (row.floor is None or row.bar is None):
        raise ConfigError(f"{where}: floor and bar are needed both, or must_stay_below for a control")
    if row.floor is not None and row.bar is not None and row.floor > row.bar:
        raise ConfigError(f"{where}: floor: {row.floor:g} is above the bar of {row.bar:g}, it has to be at or below it")
    if protocols is not None:
        _check_protocol(row.protocol, where, protocols)
    if row.curve is not None and row.curve not in curves:
        known = ", ".join(curves) or "none"
        raise ConfigError(f"{where}: curve {printable(row.curve)} is not described, curves has {known}")
    try:
        preset = _preset(row.config, home)
    except ConfigError as error:
        raise ConfigError(f"{where}: config: {error}") from None
    if preset.total_timesteps > row.budget:
        raise ConfigError(
            f"{where}: total_timesteps {preset.total_timesteps:,} is over its budget of {row.budget:,}, change one"
        )
    name = row.name or _preset_name(row.config)
    if row.name is None and not _is_name(name):
        name = Path(name).stem  # a preset that is somewhere else
    if not _is_name(name):
        raise ConfigError(
            f"{where}: name: {printable(name)} has to be 1 to {LONGEST_NAME} letters, digits, '.', '_', '-' or '/', "
            "and each part of it begins with a letter, a digit or '_'"
        )
    return Entry(row, name, preset, curves.get(row.curve) if row.curve is not None else None)


def _is_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and ROW_NAME.fullmatch(name) is not None


def _preset(config: str, home: Path) -> TrainConfig:
    """Beside the file that names it, or packaged. The working directory has no say: a benchmark is the same anywhere,
    and what is packaged names packaged presets only."""
    beside = home.parent / config
    if zoo_folder().resolve() not in home.resolve().parents and os.path.isfile(beside):
        return load_config(beside)
    name = _preset_name(config)
    if ".." not in name and os.path.isfile(zoo_folder().parent / "configs" / f"{name}.yaml"):
        return load_config(name)  # without its suffix it is never a file of the working directory
    close = difflib.get_close_matches(name, list_presets(), n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    raise ConfigError(
        f"{shown_path(config)}: no such preset or file beside the manifest{hint} "
        "(`rl-training list configs` shows the presets)"
    )


def _preset_name(config: str) -> str:
    return config.replace("\\", "/").removeprefix("./").removeprefix("configs/").removesuffix(".yaml")


def _checked(model: type[Any], raw: Any, where: str) -> Any:
    """The first problem of a row in one line, with the key and what it takes."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: {printable(raw)} is not a mapping of `key: value`")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        key = printable(problem["loc"][0] if problem["loc"] else "?", quoted=False)
        field = model.model_fields.get(key)
        if field is None:
            close = difflib.get_close_matches(key, model.model_fields, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(model.model_fields)}"
            raise ConfigError(f"{where}: {key}: unknown key, {hint}", key=key) from None
        wrong = "missing" if problem["type"] == "missing" else f"{printable(problem['input'])} is not valid"
        takes = f"{describe_field(field)} ({str(field.description).rstrip('.')})"
        raise ConfigError(f"{where}: {key}: {wrong}, expected {takes}", key=key) from None
