"""The text on the console: pure functions of a snapshot of a run.

Only the sixteen colors of the terminal are used, and plain text keeps the terminal's foreground color, so that the
display is readable on dark and on light backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rl_training.telemetry.metric_lines import RECENT_EPISODES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

MAXIMUM_WIDTH = 100
_PANEL_MINIMUM_WIDTH = 50
_PANEL_MINIMUM_HEIGHT = 16
_METRIC_ROWS = 6
_PLAIN_INFOS = 3
# Metric, label, color, and a glyph that distinguishes the parts without colors.
_SHARES = (
    ("time_env", "env", "cyan", "█"),
    ("time_act", "acting", "yellow", "▓"),
    ("time_learn", "learning", "magenta", "▒"),
    ("time_other", "other", "dim", "░"),
)
_ASCII_SHARE_GLYPHS = ("E", "A", "L", ".")


@dataclass
class Snapshot:
    """Everything that the display shows about a run at one moment."""

    title: str
    total_steps: int
    env_steps: int = 0
    episodes: int | None = None
    elapsed: float = 0.0
    steps_per_second: float | None = None
    mean_return: float | None = None  # of the last training episodes
    return_history: Sequence[float] = ()
    curve: Sequence[tuple[int, float]] = ()  # step and return of training, over the whole run
    eval_curve: Sequence[tuple[int, float]] = ()
    eval_mean: float | None = None
    eval_std: float | None = None
    eval_best: float | None = None
    eval_step: int | None = None  # the env step of the last evaluation
    eval_episodes: int | None = None
    infos: dict[str, float | None] = field(default_factory=dict)  # numbers of the env, of the training episodes
    eval_infos: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    actors: str = ""  # what the actors of the run do, in words; empty without actors
    finished: bool = False

    @property
    def fraction(self) -> float:
        return min(1.0, max(0.0, self.env_steps / self.total_steps)) if self.total_steps > 0 else 1.0

    @property
    def training_note(self) -> str:
        """What the training return is a mean of: it lags behind the agent of now."""
        episodes = min(self.episodes or 0, RECENT_EPISODES)
        return f"training, last {episodes} episode{'s' * (episodes != 1)}" if episodes else "training"

    @property
    def eval_note(self) -> str:
        """Which agent the evaluation is of."""
        episodes, step = self.eval_episodes, self.eval_step
        words = [f"{episodes} episode{'s' * (episodes != 1)}"] if episodes else []
        return ", ".join([*words, f"step {step:,}"] if step is not None else words)

    @property
    def eta(self) -> float | None:
        if not self.steps_per_second:
            return None
        return max(0, self.total_steps - self.env_steps) / self.steps_per_second


def format_duration(seconds: float | None) -> str:
    """`0:07`, `1:02:03` or `3d 04h`; `-:--` if the duration is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24:02d}h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def format_number(value: float | None) -> str:
    """A metric in at most ten characters, with a stable number of digits."""
    if value is None or not math.isfinite(value):
        return "nan"
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e7):
        return f"{value:.2e}"
    if size < 10:
        return f"{value:.4f}"
    return f"{value:,.2f}" if size < 1000 else f"{value:,.0f}"


def format_return(value: float | None) -> str:
    """A score with one decimal, or none if the number is long."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 1e9:
        return f"{value:.2e}"
    return f"{value:,.1f}" if abs(value) < 1e5 else f"{value:,.0f}"


def sparkline(values: Sequence[float], width: int) -> str:
    """A chart of `values` in at most `width` columns; each column is the mean of its part."""
    if width < 4 or len(values) < 2:
        return ""  # too few columns for a chart
    columns = min(width, len(values))
    edges = [index * len(values) // columns for index in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int((mean - low) / span * 8))] for mean in means)


def plain_line(snapshot: Snapshot) -> str:
    """The progress as one line for logs and pipes."""
    parts = [f"step {snapshot.env_steps:,} / {snapshot.total_steps:,}"]
    if snapshot.mean_return is not None:
        parts.append(f"return {format_return(snapshot.mean_return)} ({snapshot.training_note})")
    parts += [f"{name} {_short(value)}" for name, value in list(snapshot.infos.items())[:_PLAIN_INFOS]]
    if snapshot.eval_mean is not None:
        note = f" ({snapshot.eval_note})" if snapshot.eval_note else ""
        parts.append(f"evaluation {format_return(snapshot.eval_mean)}{note}")
    if snapshot.steps_per_second:
        parts.append(f"{snapshot.steps_per_second:,.0f} steps/s")
    if snapshot.actors:
        parts.append(snapshot.actors)
    parts.append(_clock(snapshot))
    return "  ".join(parts)


def actors_text(line: Mapping[str, Any]) -> str:
    """The fleet's part of a metric line in words: `4 actors, lag 1.0 (max 1), learner waits 12%`."""
    alive, actors = line.get("actors_alive"), line["actors"]
    parts = [f"{actors} actor{'s' * (actors != 1)}"]
    if alive != actors:
        parts = [f"{alive} of {actors} actors alive"]
    if "lag_mean" in line:
        parts.append(f"lag {line['lag_mean']:.1f} (max {line['lag_max']})")
    if line.get("env_steps_stale"):
        parts.append(f"{line['env_steps_stale']:,} steps stale")
    if line.get("learner_waits") is not None:
        parts.append(f"learner waits {line['learner_waits']:.0%}")
    return ", ".join(parts)


def _clock(snapshot: Snapshot) -> str:
    if snapshot.finished:
        return f"took {format_duration(snapshot.elapsed)}"
    return f"eta {format_duration(snapshot.eta)}"


def render(snapshot: Snapshot, width: int, height: int, *, ascii_only: bool, color: bool) -> RenderableType:
    """The live display for a terminal of this size: a panel, or three short lines if the panel does not fit."""
    if width < _PANEL_MINIMUM_WIDTH or height < _PANEL_MINIMUM_HEIGHT:
        return _compact(snapshot, max(1, width - 1), ascii_only)
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    outer = min(width, MAXIMUM_WIDTH)
    inner = outer - 6
    percent = f"{math.floor(snapshot.fraction * 100):d}%"
    clock = Text.assemble((f"{percent:>6}", "bold"), "  ", (f"{_clock(snapshot):>12}", ""))
    bar = _progress_bar(snapshot, inner - clock.cell_len, ascii_only)
    speed = f"{snapshot.steps_per_second:,.0f} steps/s" if snapshot.steps_per_second else "- steps/s"
    steps = f"{snapshot.env_steps:,} / {snapshot.total_steps:,} steps"
    rows = [Text.assemble(bar, clock), _justified(Text(steps), Text(speed), inner, ascii_only), Text("")]
    rows += _table(snapshot, inner, ascii_only)
    if snapshot.shares:
        rows += [Text(""), *_share_rows(snapshot, inner, ascii_only, color)]
    if snapshot.actors:
        rows.append(Text.assemble((f"{'actors':<12}", "dim"), snapshot.actors))
    for row in rows:
        _fit(row, inner, ascii_only)
    title = Text(snapshot.title)
    title.stylize("bold default not dim")  # as a span, because a panel overrides the base style with its border style
    return Panel(
        Group(*rows),
        title=title,
        title_align="left",
        box=box.ASCII if ascii_only else box.ROUNDED,
        border_style="green" if snapshot.finished and snapshot.fraction >= 1.0 else "dim",
        padding=(0, 2),
        width=outer,
    )


def _compact(snapshot: Snapshot, width: int, ascii_only: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    percent = f"{math.floor(snapshot.fraction * 100):>4d}%"
    numbers = f"return {format_return(snapshot.mean_return)}"
    speed = f"{snapshot.steps_per_second:,.0f} steps/s" if snapshot.steps_per_second else ""
    score = "" if snapshot.eval_mean is None else f"evaluation {format_return(snapshot.eval_mean)}"
    for extra in (score, _clock(snapshot), speed):
        if extra and len(numbers) + 2 + len(extra) <= width:
            numbers += f"  {extra}"
    bar = _progress_bar(snapshot, width - len(percent), ascii_only)
    rows = [Text(snapshot.title, style="bold"), Text.assemble(bar, percent), Text(numbers)]
    for row in rows:
        _fit(row, width, ascii_only)
    return Group(*rows)


def _progress_bar(snapshot: Snapshot, width: int, ascii_only: bool) -> Text:
    from rich.text import Text

    width = max(0, width)
    done = int(snapshot.fraction * width)
    full, empty = ("#", "-") if ascii_only else ("━", "─")
    return Text.assemble((full * done, "green"), (empty * (width - done), "dim"))


def _table(snapshot: Snapshot, width: int, ascii_only: bool) -> list[Text]:
    """The scores on the left, the metrics of the learner on the right."""
    from rich.text import Text

    gap = 4
    right_width = min((width - gap) // 2, 30)
    left_width = width - gap - right_width
    evaluation = Text(format_return(snapshot.eval_mean), style="bold")
    if snapshot.eval_mean is not None and snapshot.eval_std is not None:
        spread = f" {'+-' if ascii_only else '±'} {format_return(snapshot.eval_std)}"
        if 12 + evaluation.cell_len + len(spread) <= left_width:
            evaluation.append(spread, style="not bold")
    latest = Text(format_return(snapshot.mean_return), style="bold")
    if not ascii_only:
        history = sparkline(snapshot.return_history, min(32, left_width - 14 - latest.cell_len))
        latest.append(f"  {history}", style="not bold green")
    scores = [
        ("return", latest),
        ("", Text(snapshot.training_note, style="dim")),
        ("evaluation", evaluation),
        ("", Text(snapshot.eval_note or "none yet", style="dim")),
        ("best", Text(format_return(snapshot.eval_best), style="bold")),
        ("episodes", Text("-" if snapshot.episodes is None else f"{snapshot.episodes:,}")),
    ]
    metrics = [*_info_rows(snapshot), *snapshot.metrics.items()][:_METRIC_ROWS]
    rows = []
    for index, (label, value) in enumerate(scores):
        row = Text.assemble((f"{label:<12}", "dim"), value)
        _fit(row, left_width, ascii_only)
        row.pad_right(max(0, left_width - row.cell_len))
        if index < len(metrics):
            name, number = metrics[index]
            words = Text(name.replace("_", " "), style="dim")
            value = Text(number if isinstance(number, str) else format_number(number))
            row.append(" " * gap)
            row.append_text(_justified(words, value, right_width, ascii_only))
        rows.append(row)
    return rows


def _info_rows(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The numbers of the env: of the training episodes, and of the last evaluation if it has them."""
    rows = []
    for name in dict.fromkeys([*snapshot.infos, *snapshot.eval_infos]):
        text = _short(snapshot.infos[name]) if name in snapshot.infos else "-"
        if name in snapshot.eval_infos:
            text += f" (eval {_short(snapshot.eval_infos[name])})"
        rows.append((name, text))
    return rows


def _short(value: float | None) -> str:
    return "nan" if value is None else f"{value:.3g}"


def _share_rows(snapshot: Snapshot, width: int, ascii_only: bool, color: bool) -> list[Text]:
    """The shares of time: a bar in four parts and its legend, on one row if there is room."""
    from rich.text import Text

    parts = [max(0.0, snapshot.shares.get(name, 0.0)) for name, *_ in _SHARES]
    total = sum(parts) or 1.0
    glyphs = _ASCII_SHARE_GLYPHS if ascii_only else tuple("━" if color else share[3] for share in _SHARES)
    legend = Text()
    for (_, word, style, _), part, glyph in zip(_SHARES, parts, glyphs, strict=True):
        legend.append("  " if legend else "")
        legend.append("■" if color and not ascii_only else glyph, style=style)
        legend.append(f" {word} {part / total * 100:.0f}%")
    label = Text(f"{'time':<12}", style="dim")
    one_row = width - label.cell_len - 2 - legend.cell_len >= 12
    bar_width = width - label.cell_len - (2 + legend.cell_len if one_row else 0)
    bar = Text()
    edge = 0.0
    for (_, _, style, _), part, glyph in zip(_SHARES, parts, glyphs, strict=True):
        start, edge = edge, edge + part / total * bar_width
        bar.append(glyph * (round(edge) - round(start)), style=style)
    if one_row:
        return [Text.assemble(label, bar, "  ", legend)]
    indent = " " * label.cell_len if label.cell_len + legend.cell_len <= width else ""
    return [Text.assemble(label, bar), Text.assemble(indent, legend)]


def _justified(left: Text, right: Text, width: int, ascii_only: bool) -> Text:
    """`left` and `right` at the two ends of a row of `width`; only the left text is shortened."""
    from rich.text import Text

    _fit(left, max(0, width - right.cell_len - 1), ascii_only)
    return Text.assemble(left, " " * max(1, width - left.cell_len - right.cell_len), right)


def _fit(row: Text, width: int, ascii_only: bool) -> None:
    row.no_wrap = True
    row.truncate(width, overflow="crop" if ascii_only else "ellipsis")
