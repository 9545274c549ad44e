"""Metric lines: their allowed content, and reading them from a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.terminal import print_error
from rl_training.text import clean_text, one_line

METRICS_FILE = "metrics.jsonl"
LONGEST_LINE = 2**20  # bytes; ours have about a thousand
INFO_PREFIX = "info_"  # of metrics that are numbers of the env
RECENT_EPISODES = 100  # that the mean return, the mean length and the numbers of infos are about
LARGEST_FILE = 2**30  # bytes: a line every second for ten days

WALL_CLOCK_FIELDS: frozenset[str] = frozenset(
    {"wall_seconds", "steps_per_second", "time_env", "time_act", "time_learn", "time_other"}
    | {"learner_waits", "actors_wait"}  # of runs with actors
)

# Fields that describe the machine and not the experiment: equal runs may differ in them.
MACHINE_FIELDS = (
    WALL_CLOCK_FIELDS | {"failed_saves", "env_restarts", "env_timeouts"} | {"actors_alive", "actor_restarts"}
)

Line = dict[str, Any]


def clean_line(line: Mapping[str, Any]) -> Line:
    """A copy of `line` as strict JSON: plain numbers, clean text, and None for numbers that are not finite."""
    return {clean_text(str(key)): _clean_value(key, value) for key, value in line.items()}


def _clean_value(key: object, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean_text(str(name)): _clean_value(name, item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean_value(key, item) for item in value]
    if hasattr(value, "tolist"):  # numpy or torch, without importing either; a scalar becomes a plain number
        return _clean_value(key, value.tolist())
    raise TypeError(f"metric {key!r} has type {type(value).__name__}, which cannot be written as JSON")


def without_wall_clock(line: Mapping[str, Any]) -> Line:
    """The fields of a line that are the same in equal runs."""
    return {key: value for key, value in line.items() if key not in MACHINE_FIELDS}


def read_metrics(run_dir: Path | str) -> list[Line]:
    """All lines of a run, or none if it has no file. A partial last line, left by a killed writer, is skipped."""
    return list(iterate_lines(Path(run_dir) / METRICS_FILE))


def iterate_lines(path: Path, *, skip_damaged: bool = False, containing: bytes = b"") -> Iterator[Line]:
    """Read the lines of a file one by one. A damaged line before the last is an error or, on request, skipped.

    Lines without the text `containing` are passed over unread, which is many times faster.
    """
    if not os.path.lexists(path):
        return
    problem = "it is not a regular file" if not path.is_file() else None  # reading a pipe would wait for a writer
    if problem is None and path.stat().st_size > LARGEST_FILE:
        problem = f"it has more than {LARGEST_FILE:,} bytes"
    if problem is not None:
        if skip_damaged:
            return
        raise CheckpointError(f"{path}: refused, {problem}")
    broken_at = 0
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if broken_at:
                raise CheckpointError(
                    f"{path}: line {broken_at} is not a JSON object; remove the line or restore the file"
                )
            if containing not in raw:
                continue
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                line = None
            if isinstance(line, dict):
                yield line
            elif not skip_damaged:
                broken_at = number


def warn(text: str) -> None:
    """Print one line to stderr, if stderr is open."""
    print_error(f"warning: {one_line(text, 500)}")
