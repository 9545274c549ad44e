"""The picture of a board as PNG. Needs matplotlib (extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.analysis.chart import (
    COLORS,
    DASHES,
    INK,
    SOFT_INK,
    chart_style,
    draw_median,
    new_figure,
    save_png,
)
from rl_training.zoo.clock.board import OURS, Board, Task
from rl_training.zoo.clock.clock_results import find_result
from rl_training.zoo.clock.clock_table import Line, seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUR_COLOR, PEER_COLOR = COLORS[0], COLORS[1]
SEED: Any = {"linestyle": "none", "marker": "o", "markersize": 4.5, "alpha": 0.55, "markeredgewidth": 0, "zorder": 3}
UNSOLVED: Any = {**SEED, "marker": ">", "markersize": 5.5, "clip_on": False}
MEDIAN: Any = {"linestyle": "none", "marker": "|", "markersize": 15, "markeredgewidth": 2.6, "zorder": 4}


def draw_board(board: Board, lines: Sequence[Line], folders: Sequence[Path], path: Path) -> Path | None:
    """None without results."""
    shown = [task for task in board.tasks if any(line["seeds"] for line in _of(task, lines))]
    if not shown:
        return None
    with chart_style("omit --write"):
        figure = _scores(board, shown, folders) if board.minutes else _times(board, shown, lines)
        return save_png(figure, path)


def _of(task: Task, lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line["task"] == task.name]


def _times(board: Board, tasks: Sequence[Task], lines: Sequence[Line]) -> Figure:
    """A panel per task and a row per side: a dot per seed, a bar at the median, on a log axis of seconds."""
    rows = {task.name: [line for line in _of(task, lines) if line["seeds"]] for task in tasks}
    heights = [len(rows[task.name]) + 1.6 for task in tasks]
    figure = new_figure((8.6, 0.3 * sum(heights) + 1.0))
    panels = figure.subplots(len(tasks), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, task in zip(panels, tasks, strict=True):
        _draw_times(axes, task, rows[task.name])
    panels[-1].set_xlabel("seconds from the command to the solved task")
    seeds = sorted({line["seeds"] for each in rows.values() for line in each})
    number = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    legend = f"a dot per seed ({number}), a bar at the median, a triangle if it was not solved"
    figure.suptitle(f"{board.title}: {legend}", fontsize=11.5)
    return figure


def _draw_times(axes: Axes, task: Task, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    solved = [value for line in lines for value in line["each"] if value is not None]
    low, high = min(solved, default=task.limit / 10), max(solved, default=task.limit)
    any_unsolved = any(line["solved"] < line["seeds"] for line in lines)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.3, max(high * (1.9 if any_unsolved else 1.45), low * 4))
    edge = axes.get_xlim()[1]
    for place, line in enumerate(lines):
        color = OUR_COLOR if line["library"] == OURS else PEER_COLOR
        for value in line["each"]:
            axes.plot([edge if value is None else value], [place], color=color, **(UNSOLVED if value is None else SEED))
        if line["median"] is not None:
            axes.plot([line["median"]], [place], color=color, **MEDIAN)
            axes.annotate(
                seconds_text(line["median"]), (line["median"], place), (0, 7.5), textcoords="offset points",
                ha="center", va="bottom", fontsize=8, color=INK,
            )  # fmt: skip
    axes.set_ylim(len(lines) - 0.4, -0.85)
    axes.set_yticks(range(len(lines)), [line["title"] for line in lines], fontsize=9)
    for label, line in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_color(OUR_COLOR if line["library"] == OURS else SOFT_INK)
    axes.grid(visible=False, axis="y")
    axes.set_title(f"{task.text.env} at {task.text.threshold:g}", loc="left", fontsize=11)
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _scores(board: Board, tasks: Sequence[Task], folders: Sequence[Path]) -> Figure:
    """A panel per task: the median of the seeds over minutes, with the band of their middle half."""
    figure = new_figure((4.7 * len(tasks) + 1.0, 4.6))
    handles: dict[str, Any] = {}
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for place, side in enumerate(task.sides):
            found = [find_result(folders, task, side, seed) for seed in range(board.seeds)]
            values = [
                [result.score_after(minutes) for minutes in task.minutes] for result in found if result is not None
            ]
            if not values:
                continue
            color = COLORS[_place_in_library(task, place) % len(COLORS)]
            line = draw_median(
                axes, np.array(task.minutes), np.array(values, np.float64), color=color,
                dashes=DASHES[0] if side.library == OURS else DASHES[1], label=side.title,
            )  # fmt: skip
            line.set_marker("o" if side.library == OURS else "s")
            line.set_markersize(4)
            handles.setdefault(side.title, line)
        axes.set_title(task.text.env)
        axes.set_xlabel("minutes from the command")
        axes.set_xticks(task.minutes)
        axes.set_xlim(0, task.minutes[-1] * 1.03)
    figure.axes[0].set_ylabel("mean return of an evaluation")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)
    figure.suptitle(f"{board.title}: median and middle half of the seeds; dashed: other libraries")
    return figure


def _place_in_library(task: Task, place: int) -> int:
    """The same algorithm of another library has the same color."""
    algorithms = list(dict.fromkeys(side.name.partition("-")[2] for side in task.sides))
    return algorithms.index(task.sides[place].name.partition("-")[2])
