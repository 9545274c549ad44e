"""What differs between two runs: settings, versions, machine, and where their curves part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.analysis.evaluations import Evaluation, read_evaluations
from rl_training.analysis.run_group import PLACE, find_run
from rl_training.storage.run_file import read_run_info

STANDARD_ERRORS = 2.0
ABSENT = "absent"
_MACHINE = ("host", "processor", "cores", "system")
_CODE = {"git": "git commit", "package_git": "git commit of rl_training"}


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same in two runs."""

    name: str
    first: Any
    second: Any

    def summary(self) -> dict[str, Any]:
        return {"name": self.name, "first": self.first, "second": self.second}


@dataclass(frozen=True)
class Parting:
    """An evaluation of both runs at one step, and the standard error of the difference of their means."""

    env_steps: int
    first: float
    second: float
    standard_error: float

    def summary(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "first": self.first,
            "second": self.second,
            "standard_error": self.standard_error,
        }


@dataclass(frozen=True)
class RunDiff:
    """The differences of two runs.

    `differ_from` is the first common evaluation whose returns are not the same; `part_at` the first one at which they
    are more than two standard errors of their episodes apart.
    """

    first: str
    second: str
    settings: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    machine: tuple[Difference, ...]
    common_evaluations: int
    differ_from: Parting | None
    part_at: Parting | None

    @property
    def is_equal(self) -> bool:
        return not (self.settings or self.versions or self.machine or self.differ_from)

    @property
    def curves(self) -> str:
        """What the evaluations say, in one line."""
        if not self.common_evaluations:
            return "no common evaluation"
        if self.differ_from is None:
            several = f"all {self.common_evaluations} common evaluations"
            return f"the same at {several if self.common_evaluations > 1 else 'the only common evaluation'}"
        start = f"differ from step {self.differ_from.env_steps:,} on"
        if self.part_at is None:
            return f"{start}, never by more than two standard errors of their episodes"
        at = self.part_at
        return (
            f"{start}; at step {at.env_steps:,} by more than two standard errors of their episodes "
            f"({at.first:g} against {at.second:g}, standard error {at.standard_error:.3g})"
        )

    def summary(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "equal": self.is_equal,
            **{name: [each.summary() for each in getattr(self, name)] for name in ("settings", "versions", "machine")},
            "common_evaluations": self.common_evaluations,
            "differ_from": None if self.differ_from is None else self.differ_from.summary(),
            "part_at": None if self.part_at is None else self.part_at.summary(),
        }


def diff_runs(first: str | Path, second: str | Path, *, output_dir: str | Path = "runs") -> RunDiff:
    """Compare two runs: their settings with defaults, versions, machines and evaluations.

    The place and the name of a run do not count, and neither does the number of times that it was resumed. Versions and
    machines are compared where both runs have recorded them.

    >>> from rl_training import ExperimentManager
    >>> manager = ExperimentManager("runs")
    >>> _ = manager.run("a2c/cartpole", {"total_timesteps": 512}, seeds=[0, 1], show=False)
    >>> diff = diff_runs("a2c-CartPole-v1-seed0", "a2c-CartPole-v1-seed1")
    >>> [(each.name, each.first, each.second) for each in diff.settings], diff.versions
    ([('seed', 0, 1)], ())
    """
    runs = [find_run(each, output_dir) for each in (first, second)]
    sessions = [read_run_info(run.path).get("sessions", []) for run in runs]
    evaluations = [read_evaluations(run.path) for run in runs]
    differ_from, part_at, common = find_parting(*evaluations)
    return RunDiff(
        first=runs[0].shown,
        second=runs[1].shown,
        settings=_settings(runs[0].settings, runs[1].settings),
        versions=_recorded(*(_versions(each) for each in sessions)),
        machine=_recorded(*(_machine(each) for each in sessions)),
        common_evaluations=common,
        differ_from=differ_from,
        part_at=part_at,
    )


def _settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(Difference(name, *values) for name, values in differing_settings([first, second]).items())


def differing_settings(every: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings that are not the same everywhere, with the value of each. Place and name of a run do not count."""
    names = [name for name in dict.fromkeys(key for settings in every for key in settings) if name not in PLACE]
    rows = {name: [settings.get(name, ABSENT) for settings in every] for name in names}
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}


Values = dict[str, tuple[str, ...]]


def _recorded(first: Values, second: Values) -> tuple[Difference, ...]:
    """The fields that both runs have recorded with different values. A resumed run may have several values of one."""
    return tuple(
        Difference(name, ", then ".join(values), ", then ".join(second[name]))
        for name, values in first.items()
        if name in second and set(values) != set(second[name])
    )


def _versions(sessions: Sequence[Mapping[str, Any]]) -> Values:
    found: dict[str, dict[str, None]] = {}
    for session in sessions:
        for name, version in session.get("versions", {}).items():
            found.setdefault(name, {})[version] = None
        for field, words in _CODE.items():
            if field in session:
                found.setdefault(words, {})[_commit(session[field])] = None
    return {name: tuple(values) for name, values in found.items()}


def _commit(state: Mapping[str, Any]) -> str:
    return f"{state['commit'][:12]}{' with changes' if state.get('dirty') else ''}"


def _machine(sessions: Sequence[Mapping[str, Any]]) -> Values:
    fields = {name: [str(session[name]) for session in sessions if name in session] for name in _MACHINE}
    return {name: tuple(dict.fromkeys(values)) for name, values in fields.items() if values}


def find_parting(
    first: Sequence[Evaluation], second: Sequence[Evaluation]
) -> tuple[Parting | None, Parting | None, int]:
    """The first common evaluation that differs, the first at which the curves part, and the number of common ones."""
    others = {(each.env_steps, each.is_result): each for each in second}
    differ_from = part_at = None
    common = 0
    for one in first:
        two = others.get((one.env_steps, one.is_result))
        if two is None:
            continue
        common += 1
        error = math.hypot(one.standard_error, two.standard_error)
        here = Parting(one.env_steps, one.mean, two.mean, error)
        if differ_from is None and (one.mean, one.std, one.episodes) != (two.mean, two.std, two.episodes):
            differ_from = here
        if part_at is None and abs(one.mean - two.mean) > STANDARD_ERRORS * error:
            part_at = here
    return differ_from, part_at, common
