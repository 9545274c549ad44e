"""The metric stream of one run as curves that grow, with the findings about it."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_training.analysis.curves import Curve, Numbers
from rl_training.analysis.run_group import StoredRun
from rl_training.dashboard.thin_curve import thin, thinned_places
from rl_training.diagnosis.rule_book import Diagnosis
from rl_training.errors import RLTrainingError
from rl_training.telemetry.metric_lines import METRICS_FILE, Line
from rl_training.telemetry.metric_tail import MetricTail

MAIN_METRICS = ("mean_return", "eval_mean_return")
MAIN_POINTS, OTHER_POINTS = 2000, 600  # of a curve, on the page
MOST_KEPT = 40_000  # points of a curve in memory; beyond, it is thinned to the half
MOST_METRICS = 300
MOST_CURSORS = 10_000
BUDGET_SECONDS = 0.5  # of reading per call: a huge file must not stop the page

Points = dict[str, list[float | None]]


@dataclass
class _Series:
    """One metric. `lines` are the numbers of the metric lines that the values are from."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    lines: array[int] = field(default_factory=lambda: array("q"))

    def add(self, step: float, value: float, line: int) -> None:
        # Of several values at one step the first counts, as in `read_series`.
        if self.steps and step <= self.steps[-1]:
            return
        self.steps.append(step)
        self.values.append(value)
        self.lines.append(line)
        if len(self.values) > MOST_KEPT:
            kept = thinned_places(np.array(self.values), MOST_KEPT // 2)
            self.steps, self.values = (array("d", np.array(each)[kept]) for each in (self.steps, self.values))
            self.lines = array("q", np.array(self.lines)[kept])

    def since(self, line: int) -> tuple[Numbers, Numbers]:
        first = int(np.searchsorted(np.array(self.lines), line))
        return np.array(self.steps[first:]), np.array(self.values[first:])


class RunStream:
    """Follows metrics.jsonl. A cursor is the byte after the last line that a page has, and names the stream it is of:
    a resume may cut the file, and then every cursor of before is void."""

    def __init__(self, run: StoredRun, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self._clock = run, clock
        self._tail = MetricTail(run.path / METRICS_FILE)
        self._start()

    def _start(self) -> None:
        self._name = secrets.token_hex(4)
        self._series: dict[str, _Series] = {}
        self._places = {0: 0}  # byte -> lines before it
        self._lines = 0
        self._diagnosis: Diagnosis | None = None
        with contextlib.suppress(RLTrainingError):  # without a valid config.yaml there are curves, but no findings
            self._diagnosis = Diagnosis(self.run.config)

    def follow(self, budget: float = BUDGET_SECONDS) -> bool:
        """Read what is new; False if there is more than could be read in time."""
        until = self._clock() + budget
        while True:
            is_new, lines = self._tail.read()
            if is_new:
                self._start()
            for line in lines:
                self._add(line)
            self._places[self._tail.place] = self._lines
            if len(self._places) > MOST_CURSORS:
                del self._places[next(iter(self._places))]
            if not lines:
                return True
            if self._clock() > until:
                return False

    def _add(self, line: Line) -> None:
        for name, value in line.items():
            if name in ("kind", "env_steps"):
                continue
            series = self._series.get(name)
            if series is None:
                if len(self._series) >= MOST_METRICS or value is None:
                    continue
                series = self._series[name] = _Series()
            series.add(float(line["env_steps"]), math.nan if value is None else float(value), self._lines)
        self._lines += 1
        if self._diagnosis is not None:
            self._diagnosis.look(line)

    @property
    def cursor(self) -> str:
        return f"{self._tail.place}-{self._name}"

    @property
    def metrics(self) -> list[str]:
        return list(self._series)

    def findings(self) -> list[dict[str, Any]]:
        if self._diagnosis is None:
            return []
        return [{**finding.to_json(), "title": finding.title} for finding in self._diagnosis.findings]

    def curve(self, metric: str) -> Curve:
        """The finite values of a metric over env steps."""
        series = self._series.get(metric, _Series())
        steps, values = np.array(series.steps), np.array(series.values)
        finite = np.isfinite(values)
        return Curve(steps[finite], values[finite], np.zeros(int(finite.sum())))

    def since(self, cursor: str, *, points: tuple[int, int] = (MAIN_POINTS, OTHER_POINTS)) -> dict[str, Any]:
        """The points of every metric after a cursor; all of them, and `restart`, if the cursor is not of this stream.

        Curves have at most `points` points: return and evaluation, and the others.
        """
        place, _, name = cursor.partition("-")
        known = name == self._name and place.isdecimal() and len(place) < 20
        line = self._places.get(int(place)) if known else None
        series: dict[str, Points] = {}
        for metric, each in self._series.items():
            steps, values = each.since(line or 0)
            if steps.size:
                steps, values = thin(steps, values, points[metric not in MAIN_METRICS])
                series[metric] = {"x": plain(steps), "y": plain(values)}
        return {"cursor": self.cursor, "restart": line is None, "series": series}


def plain(values: Numbers) -> list[float | None]:
    """Numbers for JSON: whole ones without a fraction, None for those that are not finite."""
    return [
        None if not math.isfinite(v) else int(v) if v.is_integer() and abs(v) < 2**53 else v for v in values.tolist()
    ]
