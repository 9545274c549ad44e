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
    FAINT,
    INK,
    SOFT_INK,
    chart_style,
    draw_median,
    format_step_axis,
    new_figure,
    save_png,
)
from rl_training.analysis.curves import Curve, middle_half, on_grid
from rl_training.config.algorithm_table import ALGORITHMS
from rl_training.zoo.manifest import Entry
from rl_training.zoo.published import PublishedCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[tuple[Entry, list[Curve]]]

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
MOST_TOGETHER = 6  # lines in one plot that an eye can tell apart; more of them get a panel each
HEADING: Any = {"ha": "center", "fontweight": "bold", "fontsize": 9}
BAR: Any = {"color": "#333333", "linestyle": (0, (2, 2)), "linewidth": 1.1}
MARKS = ("o", "s", "^")  # of published curves with the same color
PAST_THE_END = 1.5  # published scores are shown up to this multiple of our steps


def picture_name(environment: str) -> str:
    """`LunarLander-v3 (continuous)` -> `lunarlander-v3-continuous.png`."""
    return re.sub(r"[^a-z0-9]+", "-", environment.lower()).strip("-") + ".png"


def plot_environment(environment: str, rows: Rows, folder: Path) -> Path | None:
    """Plot the curves of all algorithms on one env: median and middle half of the seeds. None without curves.

    Up to six of them share a plot. More get a panel each, in which the others are faint.
    """
    rows = _with_curves(rows)
    if not rows:
        return None
    with chart_style("omit --write"):
        if len(rows) > MOST_TOGETHER:
            figure = _draw_panels(environment, rows)
        else:
            figure = new_figure((8.2, 4.5))
            axes = figure.subplots()
            _draw_all(axes, rows)
            axes.set_title(f"{environment}: {_seeds_text(rows)}", loc="left")  # a long one has room on the right
            axes.set_xlabel("env steps")
            axes.set_ylabel("mean return of an evaluation")
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return save_png(figure, folder / picture_name(environment))


def _draw_panels(environment: str, rows: Rows) -> Figure:
    """A panel per row: its band and median in front of the medians of the others."""
    columns = 4 if len(rows) <= 12 else 5
    height = math.ceil(len(rows) / columns)
    figure = new_figure((2.35 * columns + 0.4, 1.75 * height + 0.9))
    grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False)
    names = _labels(rows)
    for place, axes in enumerate(grid.flat):
        if place >= len(rows):
            axes.set_visible(False)
            continue
        _draw_in_front(axes, rows, place)
        axes.set_title(names[place], fontsize=11, color=_family_color(rows[place][0].algorithm), loc="left")
        # The axes of a column are shared; ticks belong to the lowest one that is there.
        axes.tick_params(labelbottom=place + columns >= len(rows))
    figure.suptitle(f"{environment}: mean return of an evaluation, {_seeds_text(rows)}", fontsize=13)
    figure.supxlabel(f"env steps  ·  {_legend_of(rows)}", fontsize=10, color=SOFT_INK)
    return figure


def plot_overview(title: str, environments: Sequence[tuple[str, Rows]], path: Path) -> Path | None:
    """Plot all envs of a manifest in one figure: a row per algorithm and a column per env if there are many."""
    shown = [(environment, nonempty) for environment, rows in environments if (nonempty := _with_curves(rows))]
    if not shown:
        return None
    is_whole = sum(len(rows) for _, rows in shown) == sum(len(rows) for _, rows in environments)
    with chart_style("omit --write"):
        if max(len(rows) for _, rows in shown) > MOST_TOGETHER:
            return save_png(_draw_matrix(title, shown, is_whole), path)
        return save_png(_draw_side_by_side(title, shown), path)


def _draw_matrix(title: str, shown: Sequence[tuple[str, Rows]], is_whole: bool = True) -> Figure:
    """A row per algorithm and a column per env: a page is taller than it is wide, and so is its picture.

    The panels of a column share their axes. Numbers at each would take the room of the curves: the heading has the
    range.
    """
    algorithms = sorted({entry.algorithm for _, rows in shown for entry, _ in rows}, key=_number)
    width = max(1.12, 5.5 / len(shown))
    figure = new_figure((width * len(shown) + 1.1, max(0.62, 0.42 * width) * len(algorithms) + 1.5))
    grid = figure.subplots(len(algorithms), len(shown), sharex="col", sharey="col", squeeze=False)
    for (environment, rows), column in zip(shown, grid.T, strict=True):
        lowest = None
        for algorithm, axes in zip(algorithms, column, strict=True):
            places = [place for place, (entry, _) in enumerate(rows) if entry.algorithm == algorithm]
            if not places:
                axes.set_axis_off()
                continue
            _draw_in_front(axes, rows, *places, thin=True)
            axes.tick_params(labelsize=8, length=2, labelbottom=False, labelleft=False)
            lowest = axes
        if lowest is not None:
            lowest.tick_params(labelbottom=True)
        medians = [middle_half(on_grid(curves)[1])[1] for _, curves in rows]
        words = environment.replace(" (", "\n(").replace("Continuous", "\nContinuous")
        heading = f"{words}\n{min(map(min, medians)):.0f} to {max(map(max, medians)):.0f}"
        column[0].text(0.5, 1.15, heading, transform=column[0].transAxes, va="bottom", **HEADING)
    for algorithm, line in zip(algorithms, grid, strict=True):
        heading = HEADING | {"ha": "right", "color": _family_color(algorithm)}
        line[0].text(-0.12, 0.5, algorithm, transform=line[0].transAxes, va="center", **heading)
    every = [row for _, rows in shown for row in rows]
    figure.suptitle(f"{title}: mean return over env steps, {_seeds_text(every)}", fontsize=11.5)
    empty = "not in this benchmark" if is_whole else "not in this benchmark, or no curve is kept"
    names = [[entry.algorithm for entry, _ in rows] for _, rows in shown]
    second = "dashes and dots: a second preset, " if any(len(set(each)) < len(each) for each in names) else ""
    figure.supxlabel(f"{_legend_of(every)};\n{second}empty: {empty}", fontsize=9, color=SOFT_INK)
    return figure


def _draw_side_by_side(title: str, shown: Sequence[tuple[str, Rows]]) -> Figure:
    columns = min(3, len(shown))
    height = math.ceil(len(shown) / columns)
    lines: dict[str, Any] = {}
    looks = _looks([rows for _, rows in shown])
    figure = new_figure((max(7.0, 4.4 * columns), 3.2 * height + 0.8))
    for place, (environment, rows) in enumerate(shown, start=1):
        axes = figure.add_subplot(height, columns, place)
        for algorithm, line in _draw_all(axes, rows, looks).items():
            lines.setdefault(algorithm, line)
        axes.set_title(environment)
    names = sorted(lines, key=_number)
    handles = [lines[name] for name in names]
    if any(entry.published is not None for _, rows in shown for entry, _ in rows):
        names.append("published curve")
        handles += axes.plot([], [], color="#555555", marker=MARKS[0], **PUBLISHED)
    figure.legend(handles, names, loc="outside lower center", ncols=min(8, len(names)))
    every = [row for _, rows in shown for row in rows]
    figure.suptitle(f"{title}: {_seeds_text(every)}; stars are references, marks at the edge bars")
    return figure


def _family_color(algorithm: str) -> str:
    """Two colors that mean something: on-policy algorithms, and those that learn from replay."""
    return COLORS[1] if algorithm in ALGORITHMS and ALGORITHMS[algorithm].loop == "replay" else COLORS[0]


def _seeds_text(rows: Rows) -> str:
    """What a curve is made of: one seed has no median."""
    counts = sorted({sum(curve.steps.size > 0 for curve in curves) for _, curves in rows})
    if counts == [1]:
        return "one seed per curve"
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"median and middle half of {number} seeds"


def _legend_of(rows: Rows) -> str:
    words = ["blue: on-policy, orange: replay, gray: the other algorithms"]
    if any(_bar_of(entry, curves) is not None for entry, curves in rows):
        words.append("dotted: bar")
    if any(entry.row.reference is not None for entry, _ in rows):
        words.append("star: reference")
    if any(entry.published is not None for entry, _ in rows):
        words.append("dashed: published curve")
    return ", ".join(words)


def _labels(rows: Rows) -> list[str]:
    """The algorithm of each row. Where it has two presets, the second one's name goes with it, as far as it differs."""
    first: dict[str, str] = {}
    labels = []
    for entry, _ in rows:
        preset = entry.name.rpartition("/")[2]
        shorter = preset.removeprefix(f"{first.setdefault(entry.algorithm, preset)}_")
        labels.append(entry.algorithm if first[entry.algorithm] == preset else f"{entry.algorithm} ({shorter})")
    return labels


def _draw_in_front(axes: Axes, rows: Rows, *places: int, thin: bool = False) -> None:
    """Draw all rows: those at `places` in color with their band, bar and reference, the others as faint medians."""
    furthest = 0.0
    for place, (_, curves) in enumerate(rows):
        if place not in places:
            steps, values = on_grid(curves)
            axes.plot(steps, middle_half(values)[1], color=FAINT, linewidth=0.8, zorder=1)
    for order, place in enumerate(places):
        entry, curves = rows[place]
        steps, values = on_grid(curves)
        color, dashes = _family_color(entry.algorithm), TWICE if order else "solid"
        draw_median(axes, steps, values, color=color, dashes=dashes, label=_labels(rows)[place])
        bar, at = _bar_of(entry, curves), entry.row.reference_steps or entry.row.budget
        if bar is not None:
            axes.axhline(bar, **BAR)
        if entry.row.reference is not None and at <= PAST_THE_END * steps[-1]:
            axes.plot([at], [entry.row.reference], color=color, **(STAR | {"markersize": 8 if thin else 11}))
            furthest = max(furthest, at)
        if entry.published is not None:
            furthest = max(furthest, _draw_published(axes, entry.published, "published", 0, steps[-1], INK))
    _step_axis(axes, [curve for _, curves in rows for curve in curves if curve.steps.size], furthest)
    _use_few_ticks(axes, 3 if thin else 4)


def _use_few_ticks(axes: Axes, most: int) -> None:
    """Panels are narrow: on a log axis, only powers of ten and, where there is room, thrice these."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    axes.tick_params(labelsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(most))
    if axes.get_xscale() == "log":
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0) if most > 3 or high < 30 * low else (1.0,)))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(most - 1))


def _bar_of(entry: Entry, curves: Sequence[Curve]) -> float | None:
    """The bar refers to the end of a run; for runs that have only started, it would flatten all curves."""
    return entry.row.bar if _at_end(entry, curves) else None


def _with_curves(rows: Rows) -> Rows:
    return [(entry, curves) for entry, curves in rows if any(curve.steps.size for curve in curves)]


def _number(algorithm: str) -> int:
    names = list(ALGORITHMS)
    return names.index(algorithm) if algorithm in names else len(names)


def _looks(panels: Sequence[Rows]) -> dict[str, int]:
    """A number for each algorithm of a picture, for its color and dashes. There are more algorithms than looks, so the
    same one may look different in another picture."""
    names = {entry.algorithm for rows in panels for entry, _ in rows}
    return {name: place for place, name in enumerate(sorted(names, key=_number))}


def _draw_all(axes: Axes, rows: Rows, looks: dict[str, int] | None = None) -> dict[str, Any]:
    """Draw all rows; returns the line of each algorithm, for a legend."""
    looks = looks or _looks([rows])
    lines: dict[str, Any] = {}
    star = curve_end = 0.0
    for (entry, curves), label in zip(rows, _labels(rows), strict=True):
        steps, values = on_grid(curves)
        number = looks[entry.algorithm]
        color = COLORS[number % len(COLORS)]
        twice = entry.algorithm in lines
        dashes = TWICE if twice else DASHES[number // len(COLORS) % len(DASHES)]
        line = draw_median(axes, steps, values, color=color, dashes=dashes, label=label)
        lines.setdefault(entry.algorithm, line)
        at = entry.row.reference_steps or entry.row.budget
        if entry.row.reference is not None and at <= PAST_THE_END * steps[-1]:
            axes.plot([at], [entry.row.reference], color=color, **STAR)
            star = max(star, at)
        if entry.published is not None:
            end = _draw_published(axes, entry.published, f"{label}, published", number, steps[-1])
            curve_end = max(curve_end, end)
    _draw_bars(axes, rows, looks)
    if star:
        axes.plot([], [], color="#555555", label="reference", **STAR)
    _step_axis(axes, [curve for _, curves in rows for curve in curves if curve.steps.size], max(star, curve_end))
    return lines


def _draw_bars(axes: Axes, rows: Rows, looks: dict[str, int]) -> None:
    """Draw one or two bars as lines, more of them as colored marks at the right edge."""
    found = {entry.algorithm: _bar_of(entry, curves) for entry, curves in rows}
    bars = {algorithm: bar for algorithm, bar in found.items() if bar is not None}
    if not bars:
        return
    if len(set(bars.values())) <= 2:
        for number, bar in enumerate(sorted(set(bars.values()))):
            label = "bar" if number == 0 else None
            axes.axhline(bar, label=label, **BAR)
        return
    at_the_edge = axes.get_yaxis_transform()
    for algorithm, bar in bars.items():
        color = COLORS[looks[algorithm] % len(COLORS)]
        axes.plot([1.0], [bar], color=color, transform=at_the_edge, clip_on=False, **EDGE)
    axes.plot([], [], color="#555555", label="bar", **EDGE)


def _at_end(entry: Entry, curves: Sequence[Curve]) -> bool:
    furthest = max(float(curve.steps[-1]) for curve in curves if curve.steps.size)
    return entry.preset.total_timesteps <= PAST_THE_END * furthest


def _draw_published(
    axes: Axes, curve: PublishedCurve, label: str, number: int, end: float, color: str | None = None
) -> float:
    """Draw a published curve up to a little beyond our own steps, and return where it ends. For runs that have only
    started, the rest would fill most of the plot."""
    until = min(PAST_THE_END * end, curve.steps[-1])
    last = curve.at(until)
    if last is None:
        return 0.0
    inside = [(step, score) for step, score in zip(curve.steps, curve.scores, strict=True) if step < until]
    steps, scores = zip(*inside, (until, last.score), strict=True)
    color, mark = color or COLORS[number % len(COLORS)], MARKS[number // len(COLORS) % len(MARKS)]
    marked = range(len(inside) + (until in curve.steps))  # the line may end between two published points
    axes.plot(steps, scores, color=color, marker=mark, markevery=list(marked), label=label, **PUBLISHED)
    return until


def _step_axis(axes: Axes, curves: list[Curve], furthest: float) -> None:
    ends = [float(curve.steps[-1]) for curve in curves]
    if furthest:
        ends.append(min(furthest, PAST_THE_END * max(ends)))
    format_step_axis(axes, min(float(curve.steps[0]) for curve in curves), ends)
