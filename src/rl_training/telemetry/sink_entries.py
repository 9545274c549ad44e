"""The sinks of the library, and the one list of sinks that follows from the settings of a run.

`tensorboard: true` stands for the entry `tensorboard`, and `wandb_project: NAME` for `{sink: wandb, project: NAME}`.
All code asks `sinks_of`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rl_training.errors import ConfigError
from rl_training.text import clean_text

SINK_KEY = "sink"  # of an entry with options
TEXT, WORDS, PAIRS = "text", "a list of words", "names with text"


@dataclass(frozen=True)
class BuiltInSink:
    """A sink of the library: the class, the package that must be installed, and the options with their kinds."""

    address: str
    package: str
    is_tracker: bool
    options: Mapping[str, str] = field(default_factory=dict)


BUILT_IN_SINKS: dict[str, BuiltInSink] = {
    "tensorboard": BuiltInSink("rl_training.telemetry.tensorboard_sink:TensorBoardSink", "tensorboard", False),
    "wandb": BuiltInSink(
        "rl_training.telemetry.wandb_sink:WandbSink",
        "wandb",
        True,
        {"project": TEXT, "entity": TEXT, "group": TEXT, "tags": WORDS, "notes": TEXT, "mode": "online or offline"},
    ),
    "mlflow": BuiltInSink(
        "rl_training.telemetry.mlflow_sink:MlflowSink",
        "mlflow",
        True,
        {"tracking_uri": TEXT, "experiment": TEXT, "tags": PAIRS},
    ),
    "trackio": BuiltInSink(
        "rl_training.telemetry.trackio_sink:TrackioSink",
        "trackio",
        True,
        {"project": TEXT, "group": TEXT, "space_id": TEXT, "server_url": TEXT},
    ),
}


@dataclass(frozen=True)
class SinkEntry:
    """One sink of a run: a name of the library, of an entry point, or `module:Class`; and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_tracker(self) -> bool:
        """Whether it may send something off this machine: all but the ones that only write into the run."""
        return self.name not in BUILT_IN_SINKS or BUILT_IN_SINKS[self.name].is_tracker

    def __str__(self) -> str:
        project = self.options.get("project") or self.options.get("tracking_uri")
        name = clean_text(self.name, 60)
        return f"{name} ({clean_text(str(project), 60)!r})" if project else name

    def key(self) -> str:
        """The entry as text, for comparisons."""
        return json.dumps([self.name, self.options], sort_keys=True)


class HasSinks(Protocol):
    """The settings that decide about sinks: those of a `TrainConfig`."""

    @property
    def sinks(self) -> tuple[str | dict[str, Any], ...]: ...

    @property
    def tensorboard(self) -> bool: ...

    @property
    def wandb_project(self) -> str | None: ...


def sinks_of(config: HasSinks) -> tuple[SinkEntry, ...]:
    """All sinks of a run beside those that every run has. ConfigError if `wandb_project` names another project."""
    entries: dict[str, SinkEntry] = {}
    for entry in config.sinks:
        if isinstance(entry, str):
            found = SinkEntry(entry)
        else:
            found = SinkEntry(str(entry[SINK_KEY]), {name: entry[name] for name in entry if name != SINK_KEY})
        entries[found.name if found.name in BUILT_IN_SINKS else found.key()] = found
    if config.tensorboard:
        entries.setdefault("tensorboard", SinkEntry("tensorboard"))
    if config.wandb_project is not None:
        listed = entries.get("wandb", SinkEntry("wandb"))
        project = listed.options.get("project", config.wandb_project)
        if project != config.wandb_project:
            raise ConfigError(
                f"wandb_project: {clean_text(config.wandb_project, 60)!r} and sinks ({clean_text(project, 60)!r}) name "
                "two projects; set wandb_project to null",
                key="wandb_project",
            )
        entries["wandb"] = SinkEntry("wandb", {**listed.options, "project": project})
    return tuple(entries.values())
