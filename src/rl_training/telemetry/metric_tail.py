"""Follow the metric stream of a run from another process, also across a resume that cuts and rewrites it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

from rl_training.telemetry.metric_lines import LARGEST_FILE, LONGEST_LINE, Line
from rl_training.text import clean_text

MOST_BYTES = 16 * 2**20  # per call, so that a huge file is read in parts
LARGEST_NUMBER = 1e15
MOST_FIELDS = 1000
LATEST = 10  # lines that are read whatever they contain
_REMEMBERED = 512  # bytes before the current place, which tell whether the file was cut and has grown again


class MetricTail:
    """Reads the lines that were added since the last call. It only ever opens the file for reading.

    Lines without the text `containing` are passed over, which is many times faster; the latest ones are read anyway.
    """

    def __init__(self, path: Path, containing: bytes = b"") -> None:
        self.path, self._containing = path, containing
        self._place = 0
        self._before = b""

    @property
    def place(self) -> int:
        """The byte after the last line that was read."""
        return self._place

    def read(self) -> tuple[bool, list[Line]]:
        """Whether the stream was rewritten, and its new lines; after a rewrite, its lines from the start.

        Lines contain their kind and numbers, and a line that is not a JSON object is skipped: the file may be anything.
        A line without an end waits for the next call.
        """
        try:
            if not self.path.is_file() or self.path.stat().st_size > LARGEST_FILE:
                return False, []
            with self.path.open("rb") as file:
                is_new = self._is_rewritten(file.fileno())
                if is_new:
                    self._place, self._before = 0, b""
                file.seek(self._place)
                data = file.read(MOST_BYTES)
        except OSError:
            return False, []
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) > LONGEST_LINE:
            whole = data  # not a metric line: pass over it
        if whole:
            self._place += len(whole)
            self._before = (self._before + whole)[-_REMEMBERED:]
        every = whole.splitlines()
        if self._containing:
            every = [raw for raw in every[:-LATEST] if self._containing in raw] + every[-LATEST:]
        return is_new, [line for raw in every if (line := _parsed(raw)) is not None]

    def _is_rewritten(self, descriptor: int) -> bool:
        if not self._place:
            return False
        start = self._place - len(self._before)
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.read(descriptor, len(self._before)) != self._before


def newest_step(path: Path) -> int | None:
    """The step of the last line of a metric stream; None if there is no such line."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LONGEST_LINE))
            data = file.read(LONGEST_LINE)
    except OSError:
        return None
    lines = data[: data.rfind(b"\n") + 1].splitlines()[-LATEST:]
    return next((line["env_steps"] for raw in reversed(lines) if (line := _parsed(raw)) is not None), None)


def _parsed(raw: bytes) -> Line | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("env_steps")) is not int or not 0 <= line["env_steps"] < 2**63:
        return None
    fields = list(line.items())[:MOST_FIELDS]
    numbers = {clean_text(name, 100): value for name, value in fields if _is_number(value)}
    kind = "eval" if line.get("kind") == "eval" else "train"
    return {**numbers, "kind": kind, "env_steps": line["env_steps"]}  # last: a cleaned name may be one of these


def _is_number(value: object) -> bool:
    """None stands for a number that is not finite."""
    return value is None or (type(value) in (int, float) and abs(cast(float, value)) <= LARGEST_NUMBER)
