"""Plots of any metric of any runs: the median and the middle half of the seeds, as PNG, SVG or an HTML page."""

from __future__ import annotations

import difflib
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.analysis.chart import (
    COLORS,
    DASHES,
    chart_style,
    draw_median,
    format_step_axis,
    new_figure,
    png_bytes,
)
from rl_training.analysis.curves import Curve, on_grid, read_series
from rl_training.analysis.run_group import RunGroup, group_runs, newest_per_seed, select_runs
from rl_training.errors import ConfigError
from rl_training.storage.durable_files import atomic_write_bytes
from rl_training.telemetry.console_view import format_number
from rl_training.text import clean_text, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_METRIC = "eval_mean_return"
AXIS_WORDS = {DEFAULT_METRIC: "mean return of an evaluation", "mean_return": "mean return of the last 100 episodes"}
FORMATS = (".png", ".html", ".svg")
MOST_NAMES = 60  # of metrics, in an error message
SHORT = 0.9  # a run that ends before this share of its group's steps cuts the curve of the group


@dataclass(frozen=True)
class Plot:
    """A plot that was written: its file, its groups, and what the reader of it must know."""

    path: Path
    groups: tuple[RunGroup, ...]
    metrics: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        groups = [
            {"label": group.label, "seeds": group.seeds, "runs": [run.name for run in group.runs]}
            for group in self.groups
        ]
        return {"file": str(self.path), "metrics": list(self.metrics), "groups": groups, "notes": list(self.notes)}


@dataclass(frozen=True)
class _Panel:
    """The curves of one metric on one env, by the number of their group."""

    metric: str
    env: str
    curves: dict[int, list[Curve]]


def plot_runs(
    runs: Sequence[str | Path],
    output: str | Path = "plot.png",
    *,
    metrics: Sequence[str] = (DEFAULT_METRIC,),
    by: str | None = None,
    output_dir: str | Path = "runs",
) -> Plot:
    """Draw metrics of runs over environment steps to a PNG, SVG or HTML file.

    Runs with the same settings apart from the seed are one line: the median of the seeds, with a band over their middle
    half. `by` groups them by one setting instead. `runs` are names, directories, patterns or conditions, as in
    `select_runs`. An env has its own panel, and so has a metric. The HTML page loads nothing from elsewhere.

    >>> from rl_training import ExperimentManager
    >>> manager = ExperimentManager("runs")
    >>> _ = manager.run("a2c/cartpole", {"total_timesteps": 512}, seeds=[0, 1], show=False)
    >>> plot_runs(["a2c-*"], "a2c.png").groups[0].seeds
    2
    """
    output = Path(output)
    if output.suffix.lower() not in FORMATS:
        raise ConfigError(f"{output}: a plot is a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file; choose such a name")
    metrics = tuple(dict.fromkeys(metrics)) or (DEFAULT_METRIC,)
    found = {run.path.resolve(): run for text in runs for run in select_runs(str(text), output_dir)}
    kept, notes = newest_per_seed(list(found.values()))
    groups = group_runs(kept, by)
    panels, more_notes = _panels(groups, metrics)
    with chart_style("read metrics.csv with another program"):
        figure = _draw(groups, panels)
        content = _content(figure, output.suffix.lower(), groups, panels)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_bytes(output, content)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written ({one_line(error.strerror or error)})") from None
    return Plot(output, tuple(groups), metrics, (*notes, *more_notes))


def _panels(groups: Sequence[RunGroup], metrics: Sequence[str]) -> tuple[list[_Panel], list[str]]:
    panels: dict[tuple[str, str], _Panel] = {}
    known: dict[str, None] = {}
    notes = []
    for number, group in enumerate(groups):
        for run in group.runs:
            curves, names = read_series(run.path, metrics)
            known.update(dict.fromkeys(names))
            env = clean_text(run.config.env_id, 60)
            for metric, curve in curves.items():
                if not curve.steps.size:
                    notes.append(f"{run.shown} has no {metric}")
                    continue
                panel = panels.setdefault((metric, env), _Panel(metric, env, {}))
                panel.curves.setdefault(number, []).append(curve)
    for metric in metrics:
        if not any(panel.metric == metric for panel in panels.values()):
            raise unknown_metric(metric, list(known), sum(len(group.runs) for group in groups))
    ordered = sorted(panels.values(), key=lambda panel: metrics.index(panel.metric))
    for panel in ordered:
        if all(curve.steps.size == 1 for curves in panel.curves.values() for curve in curves):
            more = "; runs with eval_every have more, and so has --metric mean_return"
            hint = more if panel.metric == DEFAULT_METRIC else ""
            once = f"{panel.metric} was logged once in each run, so there are dots and no lines"
            notes.append(f"{panel.env}: {once}{hint}")
        for number, curves_of_group in panel.curves.items():
            ends = [curve.steps[-1] for curve in curves_of_group]
            if min(ends) < SHORT * max(ends):
                notes.append(
                    f"{groups[number].label}: {panel.metric} is drawn to step {min(ends):,.0f}, where its shortest run "
                    f"ends; the longest ends at {max(ends):,.0f}"
                )
    return ordered, notes


def unknown_metric(metric: str, known: list[str], runs: int) -> ConfigError:
    """The error for a metric that no run has: close names, and all that there are."""
    if not known:
        return ConfigError("--metric: the runs have no metrics yet; train them for longer")
    names = [clean_text(name, 60) for name in known]
    close = difflib.get_close_matches(metric, names, n=3)
    hint = f", did you mean {' or '.join(close)}?" if close else "."
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    where = "the run does not have it" if runs == 1 else f"none of the {runs} runs has it"
    return ConfigError(
        f"--metric {clean_text(metric, 60)}: {where}{hint} There are: {', '.join(sorted(names)[:MOST_NAMES])}{more}"
    )


def _draw(groups: Sequence[RunGroup], panels: Sequence[_Panel]) -> Figure:
    columns = 1 if len(panels) == 1 else 2 if len(panels) <= 4 else 3
    rows = math.ceil(len(panels) / columns)
    figure = new_figure((8.2 if columns == 1 else 5.4 * columns, 4.5 if rows == 1 else 3.6 * rows + 0.6))
    lines: dict[int, Any] = {}
    envs = {panel.env for panel in panels}
    several_envs = len(envs) > 1
    if not several_envs and len(panels) > 1:
        figure.suptitle(next(iter(envs)))
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, place)
        for number, line in _draw_panel(axes, panel).items():
            lines.setdefault(number, line)
        words = AXIS_WORDS.get(panel.metric, clean_text(panel.metric, 60))
        if several_envs or len(panels) == 1:
            axes.set_title(panel.env)
            axes.set_ylabel(words)
        else:
            axes.set_title(words)
        axes.set_xlabel("env steps")
    numbers = sorted(lines)
    labels = [_legend(groups[number], panels, number) for number in numbers]
    width = max(len(label) for label in labels)
    figure.legend(
        [lines[number] for number in numbers],
        labels,
        loc="outside lower center",
        ncols=max(1, min(len(labels), int(figure.get_figwidth() * 13) // (width + 6))),
    )
    return figure


def _draw_panel(axes: Axes, panel: _Panel) -> dict[int, Any]:
    lines = {}
    for number, curves in panel.curves.items():
        steps, values = on_grid(curves)
        color, dashes = COLORS[number % len(COLORS)], DASHES[number // len(COLORS) % len(DASHES)]
        lines[number] = draw_median(axes, steps, values, color=color, dashes=dashes, label=f"group {number}")
    every = [curve for curves in panel.curves.values() for curve in curves]
    ends = [max(1.0, float(curve.steps[-1])) for curve in every]
    format_step_axis(axes, max(1.0, min(float(curve.steps[0]) for curve in every)), ends)
    return lines


def _legend(group: RunGroup, panels: Sequence[_Panel], number: int) -> str:
    """The words of a line. A band needs two seeds, and a reader must not take its absence for certainty."""
    counts = {len(panel.curves[number]) for panel in panels if number in panel.curves}
    fewest, most = min(counts), max(counts)
    seeds = "1 seed, no band" if most == 1 else f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    return f" {clean_text(group.label, 120)} ({seeds})"  # a label that starts with an underscore would be hidden


def _content(figure: Figure, suffix: str, groups: Sequence[RunGroup], panels: Sequence[_Panel]) -> bytes:
    if suffix == ".png":
        return png_bytes(figure)
    svg = _svg(figure)
    return (svg if suffix == ".svg" else _page(_inline(svg), groups, panels)).encode()


def _svg(figure: Figure) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "rl_training", "svg.fonttype": "path"}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def _inline(svg: str) -> str:
    """An SVG as a part of HTML: without the declarations that name other hosts, which HTML does not need."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    return re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)


def _page(svg: str, groups: Sequence[RunGroup], panels: Sequence[_Panel]) -> str:
    head = "".join(f"<th>{html.escape(f'last {panel.metric} on {panel.env}')}</th>" for panel in panels)
    rows = []
    for number, group in enumerate(groups):
        cells = [_ending(panel.curves.get(number)) for panel in panels]
        names = ", ".join(run.shown for run in group.runs)
        words = [group.label, str(group.seeds), *cells, names]
        rows.append("<tr>" + "".join(f"<td>{html.escape(clean_text(word, None))}</td>" for word in words) + "</tr>")
    envs, metrics = (dict.fromkeys(words) for words in zip(*((p.env, p.metric) for p in panels), strict=True))
    title = html.escape(f"{', '.join(metrics)} on {', '.join(envs)}")
    return _PAGE.format(title=title, svg=svg, head=head, rows="\n".join(rows))


def _ending(curves: list[Curve] | None) -> str:
    if not curves:
        return "-"
    low, middle, high = np.quantile([curve.returns[-1] for curve in curves], [0.25, 0.5, 0.75])
    return format_number(middle) + (f" ({format_number(low)} to {format_number(high)})" if len(curves) > 1 else "")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }}
svg {{ width: 100%; height: auto; background: #fff; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
{svg}
<p>Lines are medians over seeds, bands their middle half. A line with one seed has no band.</p>
<table>
<tr><th>group</th><th>seeds</th>{head}<th>runs</th></tr>
{rows}
</table>
</body>
</html>
"""
