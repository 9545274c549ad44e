"""Runs with their settings: find them by name, glob or setting, and group them by what their settings share."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rl_training.config import yaml_text
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import CheckpointError, ConfigError
from rl_training.program import call
from rl_training.storage.run_directory import is_run_directory, list_runs, run_status
from rl_training.storage.run_file import read_run_info
from rl_training.text import clean_text

# Where a run is and how it is reported. They are not part of an experiment.
PLACE = ("run_name", "output_dir")
REPORTS = (
    "log_every",
    "log_info",
    "record_every",
    "keep_checkpoints",
    "sinks",
    "tensorboard",
    "wandb_project",
    "env_timeout",
)
PLACE_OF_ACTORS = ("runtime.backend", "runtime.actor_timeout", "runtime.address", "runtime.cpus_per_actor")
MACHINE = ("threads", "device", "compile", "vector_backend", *PLACE_OF_ACTORS)
NOT_THE_EXPERIMENT = frozenset(("seed", *PLACE, *REPORTS, *MACHINE))
SECTIONS = ("env_kwargs", "eval_env_kwargs", "runtime", "model", "algo_kwargs")
LONGEST_VALUE = 60
MOST_IN_LABEL = 4
# In a label, what learns comes before how long it may learn and how it is judged.
LAST_IN_LABEL = ("total_timesteps", "checkpoint_every", "eval_", "stop_at_return", "patience", "callbacks")

Settings = dict[str, Any]


@dataclass(frozen=True)
class StoredRun:
    """A run directory with the settings that its config.yaml holds. Reading it imports neither torch nor gymnasium."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def shown(self) -> str:
        """The name, safe to print."""
        return clean_text(self.path.name, 100)

    @cached_property
    def config(self) -> TrainConfig:
        return load_config(self.path / "config.yaml")

    @cached_property
    def settings(self) -> Settings:
        """Every setting by its dotted key, with defaults."""
        return flat_settings(self.config)

    @property
    def experiment(self) -> Settings:
        """The settings that runs of one experiment share: all but the seed, the machine, the place and the reports."""
        return {key: value for key, value in self.settings.items() if key not in NOT_THE_EXPERIMENT}

    @property
    def number(self) -> int:
        return int(read_run_info(self.path).get("number", 0))

    @property
    def status(self) -> str:
        return run_status(self.path)


@dataclass(frozen=True)
class RunGroup:
    """Runs that belong together, and the words that set them apart from other groups."""

    label: str
    runs: tuple[StoredRun, ...]

    @property
    def seeds(self) -> int:
        return len({run.config.seed for run in self.runs})


def flat_settings(config: TrainConfig) -> Settings:
    """The settings of a config by dotted key: `algo_kwargs.gamma`. A schedule is one value."""
    found: Settings = {}
    config = config.model_copy(update={"runtime": config.runtime.resolved(config.algo)})  # older runs do not store it
    for name, value in config.model_dump(mode="json").items():
        if name in SECTIONS and isinstance(value, dict):
            found |= {f"{name}.{clean_text(key, 60)}": item for key, item in value.items()}
        else:
            found[name] = value
    return found


def setting_text(value: Any) -> str:
    """A setting as one short line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return clean_text(value, LONGEST_VALUE)
    if isinstance(value, dict):
        return clean_text("{" + ", ".join(f"{key}: {setting_text(item)}" for key, item in value.items()) + "}", 60)
    if isinstance(value, (list, tuple)):
        return clean_text("[" + ", ".join(setting_text(item) for item in value) + "]", LONGEST_VALUE)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return clean_text(str(value), LONGEST_VALUE)


def select_runs(text: str, output_dir: str | Path = "runs") -> list[StoredRun]:
    """The runs that `text` names, oldest first.

    `text` is a run directory, the name of a run, `latest`, a pattern such as `ppo-*`, conditions on settings such as
    `env_id=CartPole-v1,learning_rate=0.001`, a directory of runs, or a list of these with commas.
    """
    output_dir = Path(output_dir)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if parts and all("=" in part for part in parts) and not is_run_directory(text):
        return _with_settings(parts, output_dir)
    found: dict[Path, StoredRun] = {}
    for part in [text] if is_run_directory(text) else parts:
        for run in _named(part, output_dir):
            found.setdefault(run.path.resolve(), run)
    if not found:
        raise CheckpointError(f"{clean_text(text, 100)!r}: names no run; `{call('list', 'runs')}` shows the runs")
    return list(found.values())


def find_run(target: str | Path, output_dir: str | Path = "runs") -> StoredRun:
    """The one run that `target` names, as in `select_runs`."""
    found = select_runs(str(target), output_dir)
    if len(found) != 1:
        names = ", ".join(run.shown for run in found[:3])
        raise ConfigError(f"{clean_text(str(target), 100)}: names {len(found)} runs ({names}, ...); name one")
    return found[0]


def _named(text: str, output_dir: Path) -> list[StoredRun]:
    path = Path(text)
    if is_run_directory(path):
        return [StoredRun(path)]
    every = [StoredRun(run.path) for run in reversed(list_runs(output_dir))]
    if text == "latest" and every:
        return every[-1:]
    matching = [run for run in every if run.name == text] or [
        run for run in every if fnmatch.fnmatchcase(run.name, text)
    ]
    if matching:
        return matching
    inside = [StoredRun(run.path) for run in reversed(list_runs(path))] if path.is_dir() else []
    if inside:
        return inside
    close = difflib.get_close_matches(text, [run.name for run in every], n=1)
    hint = f", did you mean {clean_text(close[0], 100)}?" if close else ""
    raise CheckpointError(
        f"{clean_text(text, 100)!r}: no such run in {output_dir}{hint}; `{call('list', 'runs')}` shows the runs"
    )


def _with_settings(conditions: Sequence[str], output_dir: Path) -> list[StoredRun]:
    every = [
        run for run in map(StoredRun, (each.path for each in reversed(list_runs(output_dir)))) if _is_readable(run)
    ]
    if not every:
        raise CheckpointError(f"{output_dir}: has no runs with a valid config.yaml; pass --output-dir")
    for condition in conditions:
        key, _, text = condition.partition("=")
        wanted = yaml_text.parse(text, key.strip(), show_line=False).data
        names = {run: find_key(key.strip(), run.settings) for run in every}
        if not any(names.values()):
            raise unknown_key(key.strip(), every)
        every = [run for run, name in names.items() if name is not None and run.settings[name] == wanted]
    if not every:
        raise CheckpointError(
            f"{clean_text(','.join(conditions), 100)!r}: no run in {output_dir} has these settings; "
            f"`{call('list', 'runs')}` shows the runs"
        )
    return every


def _is_readable(run: StoredRun) -> bool:
    """Whether its settings can be read: one damaged run must not hide the others."""
    try:
        return bool(run.settings)
    except ConfigError:
        return False


def find_key(key: str, settings: Mapping[str, Any]) -> str | None:
    """The dotted key of a setting that may be named without its section: `gamma` is `algo_kwargs.gamma`."""
    if key in settings:
        return key
    homes = [f"{section}.{key}" for section in reversed(SECTIONS) if f"{section}.{key}" in settings]
    return homes[0] if homes else None


def unknown_key(key: str, runs: Iterable[StoredRun]) -> ConfigError:
    names = sorted({name for run in runs for name in run.settings})
    short = {name.rpartition(".")[2]: name for name in names}
    close = difflib.get_close_matches(key, [*names, *short], n=1)
    hint = f", did you mean {clean_text(close[0], 60)}?" if close else ""
    return ConfigError(f"{clean_text(key, 60)}: no run has this setting{hint} (config.yaml of a run shows all)")


def group_runs(runs: Sequence[StoredRun], by: str | None = None) -> list[RunGroup]:
    """Group runs by their experiment, or by the value of one setting, in the order of their first run."""
    keys = _group_keys(runs, by)
    groups: dict[str, list[StoredRun]] = {}
    for run, key in zip(runs, keys, strict=True):
        groups.setdefault(key, []).append(run)
    if by is not None:
        return [RunGroup(label, tuple(members)) for label, members in groups.items()]
    labels = _labels([members[0] for members in groups.values()])
    return [RunGroup(label, tuple(members)) for label, members in zip(labels, groups.values(), strict=True)]


def _group_keys(runs: Sequence[StoredRun], by: str | None) -> list[str]:
    if by is None:
        return [repr(sorted((key, value) for key, value in run.experiment.items() if key != "env_id")) for run in runs]
    names = [find_key(by, run.settings) for run in runs]
    if not any(names):
        raise unknown_key(by, runs)
    values = [None if name is None else run.settings[name] for name, run in zip(names, runs, strict=True)]
    return [f"{by.rpartition('.')[2]} {setting_text(value)}" for value in values]


def _labels(members: Sequence[StoredRun]) -> list[str]:
    """For each run the settings that tell it from the others; settings of one algorithm are compared within it."""
    algorithms = {run.config.algo for run in members}
    labels = []
    for run in members:
        own = run.experiment
        peers = [other.experiment for other in members if other.config.algo == run.config.algo and other != run]
        differing = [key for key in own if key != "env_id" and any(peer.get(key) != own[key] for peer in peers)]
        differing.sort(key=lambda key: key.startswith(LAST_IN_LABEL))
        shown = differing[: _words_needed(own, peers, differing)]
        words = [f"{key.rpartition('.')[2]} {setting_text(own[key])}" for key in shown]
        if len(differing) > len(shown):
            words.append(f"{len(differing) - len(shown)} more")
        labels.append(", ".join([run.config.algo] * (len(algorithms) > 1 or not words) + words))
    return labels


def _words_needed(own: Settings, peers: Sequence[Settings], differing: Sequence[str]) -> int:
    """How many settings a label names: a few, and as many more as it takes to differ from every other label."""
    for count in range(MOST_IN_LABEL, len(differing)):
        if not any(all(peer.get(key) == own[key] for key in differing[:count]) for peer in peers):
            return count
    return len(differing)


def newest_per_seed(runs: Sequence[StoredRun]) -> tuple[list[StoredRun], list[str]]:
    """The runs without those that repeat the settings and the seed of a newer one, and a note on each repetition."""
    newest: dict[str, StoredRun] = {}
    notes = []
    for run in sorted(runs, key=lambda run: run.number):
        key = repr((sorted(run.experiment.items()), run.config.seed))
        if key in newest:
            notes.append(f"{newest[key].shown} is left out: {run.shown} repeats its settings and seed")
        newest[key] = run
    kept = set(newest.values())
    return [run for run in runs if run in kept], notes
