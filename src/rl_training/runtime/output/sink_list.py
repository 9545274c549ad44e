"""The sinks of a session: those that the config names and those that the caller passes as objects.

A sink that is not in the library is an entry point of the group `rl_training.sinks`, or `module:Class`. It must be a
subclass of `Sink`, so a config cannot call anything else. A sink of a stored run that is not known to be the user's own
is not even imported.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from rl_training.config.messages import printable
from rl_training.config.train_config import TrainConfig
from rl_training.envs.env_specs import import_user_module
from rl_training.errors import ConfigError, install_hint, raise_interrupts
from rl_training.telemetry.metric_lines import warn
from rl_training.telemetry.sink_entries import BUILT_IN_SINKS, SinkEntry, sinks_of
from rl_training.telemetry.sinks import Sink
from rl_training.telemetry.tracker_consent import is_own, proof_for, refusal
from rl_training.text import clean_text, describe_error

ENTRY_POINT_GROUP = "rl_training.sinks"


def make_sinks(entries: Iterable[SinkEntry], objects: Sequence[Sink] = ()) -> list[Sink]:
    """The sinks of a session, not open yet; ConfigError if one cannot be made. No run directory exists then."""
    return [*(_made(entry) for entry in entries), *(_checked(item) for item in objects)]


def split_sinks(value: Any) -> tuple[Any, list[Sink]]:
    """The entries for the setting `sinks`, and the objects, of what a caller passes as `sinks=`."""
    if isinstance(value, (list, tuple)):
        entries = [item for item in value if isinstance(item, (str, Mapping))]
        return entries, [_checked(item) for item in value if not isinstance(item, (str, Mapping))]
    if isinstance(value, (str, Mapping)):
        return value, []
    return [], [_checked(value)]


def permitted(
    entries: Sequence[SinkEntry], stored: Sequence[SinkEntry], run_info: Mapping[str, Any], trackers: bool | None
) -> list[SinkEntry]:
    """The entries that may be used: the user named them now, started the run, or says so with `trackers`."""
    if trackers is None and is_own(run_info, consent_text(stored)):
        return list(entries)
    known = {entry.key() for entry in stored}
    asked = [entry for entry in entries if entry.is_tracker and (trackers is False or entry.key() in known)]
    if trackers is True or not asked:
        return list(entries)
    if trackers is None:
        warn(refusal([str(entry) for entry in asked]))
    return [entry for entry in entries if entry not in asked]


def uses_trackers(config: TrainConfig, run_info: Mapping[str, Any]) -> bool:
    """Whether the trackers of a stored config may be used without asking. If not, one line says so."""
    entries = sinks_of(config)
    return len(permitted(entries, entries, run_info, None)) == len(entries)


def consent_text(entries: Sequence[SinkEntry]) -> str:
    """What the proof of consent signs: all trackers with their options. A lone W&B project is signed by its name."""
    trackers = [entry for entry in entries if entry.is_tracker]
    if len(trackers) == 1 and trackers[0].name == "wandb" and set(trackers[0].options) == {"project"}:
        return str(trackers[0].options["project"])
    return "sinks:" + json.dumps(sorted(entry.key() for entry in trackers))  # W&B allows no colon in a project


def proof_of(config: TrainConfig, used: Sequence[SinkEntry]) -> dict[str, str]:
    """The field of run.json that shows who started a run; empty if it has no trackers or some are refused."""
    trackers = [entry for entry in sinks_of(config) if entry.is_tracker]
    if not trackers or any(entry not in used for entry in trackers):
        return {}
    return proof_for(consent_text(trackers))


def _made(entry: SinkEntry) -> Sink:
    shown = f"sinks: {printable(entry.name, quoted=False)}"
    built_in = BUILT_IN_SINKS.get(entry.name)
    if built_in is not None:
        _require(entry.name, built_in.package)
        module, _, name = built_in.address.partition(":")
        kind = getattr(importlib.import_module(module), name)
    else:
        kind = _found(entry.name, shown)
    if not isinstance(kind, type) or not issubclass(kind, Sink):
        raise ConfigError(f"{shown}: it is not a subclass of rl_training.Sink", key="sinks")
    try:
        return kind(**entry.options)
    except BaseException as error:
        raise_interrupts(error)
        raise ConfigError(f"{shown}: it cannot be created: {describe_error(error)}", key="sinks") from error


def _require(name: str, package: str) -> None:
    """ConfigError if a package is missing. It is not imported yet: that takes seconds, and settings come first."""
    try:
        is_there = sys.modules[package] is not None if package in sys.modules else importlib.util.find_spec(package)
    except (ImportError, ValueError):
        is_there = None
    if not is_there:
        raise ConfigError(f"sinks: {package} is not installed; {install_hint(name)} or leave {name} out", key="sinks")


def _found(name: str, shown: str) -> Any:
    """The class of an entry point, or of `module:Class`."""
    module_name, is_address, attribute = name.partition(":")
    try:
        if is_address:
            module = import_user_module(module_name)
            if not hasattr(module, attribute):
                close = difflib.get_close_matches(attribute, vars(module), n=1)
                hint = f", did you mean {close[0]}?" if close else ""
                raise ConfigError(f"{shown}: {module_name} has no such name{hint}", key="sinks")
            return getattr(module, attribute)
        points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        if name in points:
            return points[name].load()
    except ConfigError:
        raise
    except BaseException as error:
        raise_interrupts(error)
        raise ConfigError(f"{shown}: importing it failed with {describe_error(error)}", key="sinks") from error
    known = [*BUILT_IN_SINKS, *(clean_text(point, 60) for point in points)]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}; your own is module:Class"
    raise ConfigError(f"{shown}: there is no such sink, {hint}", key="sinks")


def _checked(item: Any) -> Any:
    """An object of the caller that has the methods of a sink."""
    if isinstance(item, type):
        raise ConfigError(f"sinks: {item.__name__} is a class, pass an instance: {item.__name__}()", key="sinks")
    if not callable(getattr(item, "write", None)):
        raise ConfigError(
            f"sinks: {printable(item)} has no method write; pass a name or an object with the methods of "
            "rl_training.Sink",
            key="sinks",
        )
    return item
