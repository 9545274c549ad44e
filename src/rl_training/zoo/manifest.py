"""Benchmark manifests: rows of preset, budget, target and reference, read from YAML and fully validated."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rl_training.config import yaml_text
from rl_training.config.base import StrictModel
from rl_training.config.loading import list_presets, load_config, preset_name, shown_path
from rl_training.config.messages import describe_field, printable
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError
from rl_training.program import call
from rl_training.zoo.published import CurveText, PublishedCurve, checked_curve

MAIN = "benchmark"
CLOCK = "clock"  # the directory of the boards of wall time (zoo/clock/)
PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
ROW_NAME = re.compile(rf"{PART}(/{PART})*")  # a row name is also a file path, so no part may be `..`
LONGEST_NAME = 50  # a run name adds the seed to it


class Row(StrictModel):
    """One preset and its target score."""

    config: str = Field(min_length=1, description="Path of the preset, such as configs/ppo/cartpole.yaml.")
    name: str | None = Field(None, min_length=1, description="Name of the row; null uses the preset's name.")
    budget: int = Field(ge=1, description="Largest number of env steps of the preset.")
    floor: float | None = Field(None, description="Score that four of five seeds must reach.")
    bar: float | None = Field(None, description="Score that the median seed must reach.")
    must_stay_below: float | None = Field(None, description="For a control, instead of floor and bar: upper limit.")
    reference: float | None = Field(None, description="Published or measured score to compare with; null for none.")
    reference_steps: int | None = Field(None, ge=1, description="Env steps of the reference (default: the budget).")
    source: str = Field(min_length=1, description="Origin of the reference.")
    protocol: str = Field(min_length=1, description="How the reference was measured: a key of `protocols`.")
    curve: str | None = Field(None, description="Published learning curve: a key of `curves`; null for none.")
    note: str = Field("", description="Remark that is printed below the table.")
    long: bool = Field(False, description="Takes hours; runs only on request.")


class ManifestText(StrictModel):
    """The contents of a manifest file. A row is a mapping, or the name of a file that holds one."""

    title: str = Field(min_length=1, description="Title of the table.")
    about: str = Field("", description="A sentence or two below the title.")
    protocols: dict[str, str] = Field(description="Name -> how scores were measured.")
    curves: dict[str, Any] = Field({}, description="Name -> a published learning curve.")
    rows: list[Any] = Field(min_length=1, description="Rows, or names of files with one row each.")


@dataclass(frozen=True)
class Entry:
    """A row with its loaded preset and published curve."""

    row: Row
    name: str
    preset: TrainConfig
    published: PublishedCurve | None = None

    @property
    def algorithm(self) -> str:
        return self.preset.algo

    @property
    def run_prefix(self) -> str:
        """First part of the names of its run directories."""
        return self.name.replace("/", "-")

    @property
    def round_steps(self) -> int:
        """Env steps of one round of training: evaluations wait for its end."""
        return self.preset.num_envs * getattr(self.preset.algo_kwargs, "num_steps", 1)

    @cached_property
    def environment(self) -> str:
        """The env id, followed by the variant in parentheses."""
        kwargs = self.preset.env_kwargs
        words = [word for key, word in (("continuous", "continuous"), ("mask_velocity", "masked")) if kwargs.get(key)]
        return self.preset.env_id + (f" ({', '.join(words)})" if words else "")

    @property
    def threshold(self) -> float | None:
        """The score that counts as having learned the task; None for a control."""
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
        """Rows by full name, algorithm or last part of the name. A long row needs its full name or `long`."""
        for word in only:
            if not any(word in _names(entry) for entry in self.entries):
                known = sorted({name for entry in self.entries for name in _names(entry)})
                close = difflib.get_close_matches(word, known, n=1)
                short = [name for name in known if "/" not in name] or known
                hint = f", did you mean {close[0]}?" if close else f"; known names: {', '.join(short)}"
                raise ConfigError(f"--only {printable(word, quoted=False)}: no such row in {self.name}{hint}")
        matches = [entry for entry in self.entries if not only or _names(entry) & set(only)]
        return tuple(entry for entry in matches if long or not entry.row.long or entry.name in only)


def _names(entry: Entry) -> set[str]:
    return {entry.name, entry.algorithm, entry.name.rpartition("/")[2]}


def zoo_folder() -> Path:
    return Path(str(files("rl_training") / "assets" / "zoo"))


def list_manifests() -> list[str]:
    """Names of the packaged manifests, sorted."""
    return sorted(path.parent.name for path in zoo_folder().glob(f"*/{MAIN}.yaml"))


def list_single_rows() -> list[str]:
    """Names of the packaged files that hold a single row, sorted."""
    folder = zoo_folder()
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix()
        for path in folder.glob("*/*.yaml")
        if path.stem != MAIN and path.parent.name != CLOCK
    )


def load_manifest(source: str | Path) -> Manifest:
    """Load a packaged manifest (`classic`, `zoo/atari/benchmark.yaml`) or a file, with all presets."""
    path, name = _find(str(source))
    document = yaml_text.read_file(path, name)
    if "tasks" in document.data:
        raise ConfigError(f"{name}: is a board of wall time, use `{call('zoo', 'clock', path.stem)}`")
    if "rows" not in document.data and "config" in document.data:
        return _single_row(document.data, path, name)
    text = checked(ManifestText, document.data, name)
    curves = {key: _curve(str(key), raw, name, text.protocols) for key, raw in text.curves.items()}
    entries = []
    for number, raw in enumerate(text.rows, start=1):
        home, where = path, f"{name}, row {number}"
        if isinstance(raw, str):
            home, where = path.parent / raw, f"{name}, row {number} ({printable(raw, quoted=False)})"
            if not os.path.isfile(home):
                raise ConfigError(f"{where}: no such file next to the manifest")
            raw = yaml_text.read_file(home, where).data
        entries.append(_entry(raw, home, where, text.protocols, curves))
    _check_run_names(entries, name)
    short = path.resolve().parent.name if path.stem == MAIN else path.stem
    return Manifest(short, text.title, text.about, text.protocols, tuple(entries), curves)


def _find(text: str) -> tuple[Path, str]:
    """The file of a manifest, and its name in error messages."""
    shown = shown_path(text)
    if text.endswith((".yaml", ".yml")) and os.path.isfile(text):
        return Path(text), shown
    inside = text.replace("\\", "/").removeprefix("./").removeprefix("zoo/").removesuffix(".yaml")
    for name in (f"{inside}.yaml", f"{inside}/{MAIN}.yaml"):
        path = zoo_folder() / name
        if ".." not in Path(name).parts and os.path.isfile(path):  # unlike Path.is_file, False for an overlong name
            return path, shown
    names = list_manifests()
    close = difflib.get_close_matches(inside, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the packaged ones are {', '.join(names)}"
    raise ConfigError(f"{shown}: no such manifest, {hint}")


def _single_row(raw: Any, path: Path, name: str) -> Manifest:
    """The manifest of a file with one row; protocols and curves come from the benchmark file next to it, if any."""
    main = path.with_name(f"{MAIN}.yaml")
    benchmark = load_manifest(main) if main.is_file() else None
    protocols, curves = (benchmark.protocols, benchmark.curves) if benchmark is not None else (None, {})
    entry = _entry(raw, path, name, protocols, curves)
    title = f"{entry.algorithm} on {entry.environment}"
    return Manifest(entry.run_prefix, title, "", protocols or {}, (entry,), curves)


def _check_run_names(entries: Sequence[Entry], name: str) -> None:
    """Two rows must not share run directories."""
    owners: dict[str, str] = {}
    for number, entry in enumerate(entries, start=1):
        if (other := owners.get(entry.run_prefix)) is not None:
            problem = "appears twice" if other == entry.name else f"has the same run directories as {other}"
            raise ConfigError(f"{name}, row {number}: {entry.name} {problem}, rename one of them")
        owners[entry.run_prefix] = entry.name


def _curve(key: str, raw: Any, name: str, protocols: dict[str, str]) -> PublishedCurve:
    where = f"{name}, curve {printable(key, quoted=False)}"
    text = checked(CurveText, raw, where)
    _check_defined("protocol", text.protocol, protocols, where)
    return checked_curve(key, text, where)


def _entry(
    raw: Any, home: Path, where: str, protocols: dict[str, str] | None, curves: dict[str, PublishedCurve]
) -> Entry:
    """A validated row; `home` is the file that holds it. Without protocols, its protocol is not checked."""
    row = checked(Row, raw, where)
    _check_target(row, where)
    if protocols is not None:
        _check_defined("protocol", row.protocol, protocols, where)
    if row.curve is not None:
        _check_defined("curve", row.curve, curves, where)
    preset = _preset(row.config, home, where)
    if preset.total_timesteps > row.budget:
        raise ConfigError(
            f"{where}: total_timesteps {preset.total_timesteps:,} exceeds the budget of {row.budget:,}, change one"
        )
    return Entry(row, _row_name(row, where), preset, None if row.curve is None else curves[row.curve])


def _check_target(row: Row, where: str) -> None:
    """A row has floor and bar; a control has must_stay_below instead."""
    has_target = row.floor is not None or row.bar is not None
    if has_target == (row.must_stay_below is not None):
        raise ConfigError(f"{where}: needs either floor and bar, or must_stay_below for a control")
    if not has_target:
        return
    if row.floor is None or row.bar is None:
        raise ConfigError(f"{where}: needs both floor and bar, or must_stay_below for a control")
    if row.floor > row.bar:
        raise ConfigError(f"{where}: floor: {row.floor:g} is above the bar of {row.bar:g}, must be at most the bar")


def _check_defined(kind: str, name: str, defined: Mapping[str, Any], where: str) -> None:
    if name not in defined:
        known = ", ".join(defined) or "none"
        raise ConfigError(f"{where}: {kind} {printable(name)} is not defined, {kind}s has {known}")


def _row_name(row: Row, where: str) -> str:
    name = row.name or preset_name(row.config)
    if row.name is None and not _is_name(name):
        name = Path(name).stem  # the path of a preset outside the package is not a row name
    if not _is_name(name):
        raise ConfigError(
            f"{where}: name: {printable(name)} must be 1 to {LONGEST_NAME} letters, digits, '.', '_', '-' or '/', "
            "and each part must start with a letter, a digit or '_'"
        )
    return name


def _is_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and ROW_NAME.fullmatch(name) is not None


def _preset(config: str, home: Path, where: str) -> TrainConfig:
    """Load a preset next to `home`, or a packaged one. The working directory does not matter: a benchmark is the same
    everywhere, and packaged manifests name packaged presets only."""
    try:
        neighbor = home.parent / config
        if zoo_folder().resolve() not in home.resolve().parents and os.path.isfile(neighbor):
            return load_config(neighbor)
        name = preset_name(config)
        if ".." not in name and os.path.isfile(zoo_folder().parent / "configs" / f"{name}.yaml"):
            return load_config(name)  # a name without suffix never means a file of the working directory
    except ConfigError as error:
        raise ConfigError(f"{where}: config: {error}") from None
    close = difflib.get_close_matches(name, list_presets(), n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    raise ConfigError(
        f"{where}: config: {shown_path(config)}: no such preset, and no such file next to the manifest{hint} "
        f"(`{call('list', 'configs')}` shows the presets)"
    )


def checked(model: type[Any], raw: Any, where: str) -> Any:
    """Validate a mapping; its first problem becomes one line with the key and the expected value."""
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
            hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(model.model_fields)}"
            raise ConfigError(f"{where}: {key}: unknown key, {hint}", key=key) from None
        cause = "missing" if problem["type"] == "missing" else f"{printable(problem['input'])} is not valid"
        expected = f"{describe_field(field)} ({str(field.description).rstrip('.')})"
        raise ConfigError(f"{where}: {key}: {cause}, expected {expected}", key=key) from None
