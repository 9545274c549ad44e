"""Plots of learning curves as PNG files. Needs matplotlib (extra `plots`)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.analysis.chart import (
    COLORS,
    DASHES,
    chart_style,
    draw_median,
    format_step_axis,
    new_figure,
    save_png,
)
from rl_training.analysis.curves import Curve, on_grid
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.zoo.manifest import Entry
from rl_training.zoo.published import PublishedCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[tuple[Entry, list[Curve]]]

# An algorithm looks the same in every plot: on-policy algorithms, which come first in the registry, are solid, the
# others dashed or dotted.
TWICE: Any = (0, (6, 1.5, 1, 1.5))  # a second preset of the same algorithm and env
EDGE: Any = {
    "marker": 8,
    "linestyle": "none",
    "markersize": 8,
    "zorder": 4,
    "in_layout": False,
}  # 8: left caret
STAR: Any = {  # may lie on the edge of the axes without moving them
    "marker": "*", "linestyle": "none", "markersize": 13, "markeredgecolor": "white", "zorder": 5, "clip_on": False,
    "in_layout": False,
}  # fmt: skip
PUBLISHED: Any = {"linestyle": (0, (4, 2)), "linewidth": 1.1, "markersize": 3.5, "markerfacecolor": "white"}
MARKS = ("o", "s", "^")  # of published curves with the same color
PAST_THE_END = 1.5  # published scores are shown up to this multiple of our steps


def picture_name(environment: str) -> str:
    """`LunarLander-v3 (continuous)` -> `lunarlander-v3-continuous.png`."""
    return re.sub(r"[^a-z0-9]+", "-", environment.lower()).strip("-") + ".png"


def plot_environment(environment: str, rows: Rows, folder: Path) -> Path | None:
    """Plot the curves of all algorithms on one env: median and middle half of the seeds. None without curves."""
    rows = _with_curves(rows)
    if not rows:
        return None
    with chart_style("omit --write"):
        figure = new_figure((8.2, 4.5))
        axes = figure.subplots()
        _draw_all(axes, rows)
        axes.set_title(environment)
        axes.set_xlabel("env steps")
        axes.set_ylabel("mean return of an evaluation")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return save_png(figure, folder / picture_name(environment))


def plot_overview(title: str, environments: Sequence[tuple[str, Rows]], path: Path) -> Path | None:
    """Plot all envs of a manifest in one figure."""
    shown = [(environment, nonempty) for environment, rows in environments if (nonempty := _with_curves(rows))]
    if not shown:
        return None
    columns = min(3, len(shown))
    height = math.ceil(len(shown) / columns)
    lines: dict[str, Any] = {}
    with chart_style("omit --write"):
        figure = new_figure((max(7.0, 4.4 * columns), 3.2 * height + 0.8))
        for place, (environment, rows) in enumerate(shown, start=1):
            axes = figure.add_subplot(height, columns, place)
            for algorithm, line in _draw_all(axes, rows).items():
                lines.setdefault(algorithm, line)
            axes.set_title(environment)
        names = sorted(lines, key=_number)
        handles = [lines[name] for name in names]
        if any(entry.published is not None for _, rows in shown for entry, _ in rows):
            names.append("published curve")
            handles += axes.plot([], [], color="#555555", marker=MARKS[0], **PUBLISHED)
        figure.legend(handles, names, loc="outside lower center", ncols=min(8, len(names)))
        legend = "median and middle half of the seeds; stars are references, marks at the edge bars"
        figure.suptitle(f"{title}: {legend}")
        return save_png(figure, path)


def _with_curves(rows: Rows) -> Rows:
    return [(entry, curves) for entry, curves in rows if any(curve.steps.size for curve in curves)]


def _number(algorithm: str) -> int:
    names = list(ALGORITHMS)
    return names.index(algorithm) if algorithm in names else len(names)


def _draw_all(axes: Axes, rows: Rows) -> dict[str, Any]:
    """Draw all rows; returns the line of each algorithm, for a legend."""
    lines: dict[str, Any] = {}
    star = curve_end = 0.0
    for entry, curves in rows:
        steps, values = on_grid(curves)
        number = _number(entry.algorithm)
        color = COLORS[number % len(COLORS)]
        twice = entry.algorithm in lines
        dashes = TWICE if twice else DASHES[number // len(COLORS) % len(DASHES)]
        label = f"{entry.algorithm} ({entry.name.rpartition('/')[2]})" if twice else entry.algorithm
        line = draw_median(axes, steps, values, color=color, dashes=dashes, label=label)
        lines.setdefault(entry.algorithm, line)
        at = entry.row.reference_steps or entry.row.budget
        if entry.row.reference is not None and at <= PAST_THE_END * steps[-1]:
            axes.plot([at], [entry.row.reference], color=color, **STAR)
            star = max(star, at)
        if entry.published is not None:
            end = _draw_published(axes, entry.published, f"{label}, published", number, steps[-1])
            curve_end = max(curve_end, end)
    _draw_bars(axes, rows)
    if star:
        axes.plot([], [], color="#555555", label="reference", **STAR)
    _step_axis(axes, [curve for _, curves in rows for curve in curves if curve.steps.size], max(star, curve_end))
    return lines


def _draw_bars(axes: Axes, rows: Rows) -> None:
    """Draw one or two bars as lines, more of them as colored marks at the right edge. A bar refers to the end of a run;
    for runs that have only started, it would flatten all curves."""
    finished = [entry for entry, curves in rows if _at_end(entry, curves)]
    bars = {entry.algorithm: entry.row.bar for entry in finished if entry.row.bar is not None}
    if not bars:
        return
    if len(set(bars.values())) <= 2:
        for number, bar in enumerate(sorted(set(bars.values()))):
            label = "bar" if number == 0 else None
            axes.axhline(bar, color="#333333", linestyle=(0, (2, 2)), linewidth=1.1, label=label)
        return
    at_the_edge = axes.get_yaxis_transform()
    for algorithm, bar in bars.items():
        color = COLORS[_number(algorithm) % len(COLORS)]
        axes.plot([1.0], [bar], color=color, transform=at_the_edge, clip_on=False, **EDGE)
    axes.plot([], [], color="#555555", label="bar", **EDGE)


def _at_end(entry: Entry, curves: Sequence[Curve]) -> bool:
    furthest = max(float(curve.steps[-1]) for curve in curves if curve.steps.size)
    return entry.preset.total_timesteps <= PAST_THE_END * furthest


def _draw_published(axes: Axes, curve: PublishedCurve, label: str, number: int, end: float) -> float:
    """Draw a published curve up to a little beyond our own steps, and return where it ends. For runs that have only
    started, the rest would fill most of the plot."""
    until = min(PAST_THE_END * end, curve.steps[-1])
    last = curve.at(until)
    if last is None:
        return 0.0
    inside = [(step, score) for step, score in zip(curve.steps, curve.scores, strict=True) if step < until]
    steps, scores = zip(*inside, (until, last.score), strict=True)
    color, mark = COLORS[number % len(COLORS)], MARKS[number // len(COLORS) % len(MARKS)]
    marked = range(len(inside) + (until in curve.steps))  # the line may end between two published points
    axes.plot(steps, scores, color=color, marker=mark, markevery=list(marked), label=label, **PUBLISHED)
    return until


def _step_axis(axes: Axes, curves: list[Curve], furthest: float) -> None:
    ends = [float(curve.steps[-1]) for curve in curves]
    if furthest:
        ends.append(min(furthest, PAST_THE_END * max(ends)))
    format_step_axis(axes, min(float(curve.steps[0]) for curve in curves), ends)
