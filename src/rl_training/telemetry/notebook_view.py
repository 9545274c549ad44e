"""What a notebook shows of a run: pure functions that return one piece of HTML.

It carries its style with it and fetches nothing. Text and lines have the notebook's own color, so light and dark themes
both work; the two series have the hues of the dashboard, in tones that can be seen on both.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from rl_training.telemetry.console_view import (
    Snapshot,
    format_duration,
    format_number,
    format_return,
)

Points = Sequence[tuple[float, float]]  # env step and value

TRAINING, EVALUATION = "#d96a1d", "#3b8fd4"
MOST_METRICS = 6
MOST_MEDIA_BYTES = 20_000_000  # a notebook with more becomes hard to open
MEDIA_TYPES = {".gif": "image/gif", ".png": "image/png", ".mp4": "video/mp4"}
_CARD = "border:1px solid rgba(128,128,128,.35);border-radius:10px;padding:12px 16px;max-width:720px;font-size:13px"
_WIDTH, _HEIGHT = 680, 150
_NARROWEST = 480  # pixels: on a phone the chart scrolls, because its words would be too small to read


def snapshot_html(snapshot: Snapshot, notes: Sequence[str] = ()) -> str:
    """The live display: progress, scores, metrics and both curves."""
    percent = 100 * snapshot.fraction
    speed = f"{snapshot.steps_per_second:,.0f} steps/s" if snapshot.steps_per_second else "- steps/s"
    clock = (
        f"took {format_duration(snapshot.elapsed)}" if snapshot.finished else f"{format_duration(snapshot.eta)} left"
    )
    bar = (
        '<div style="height:6px;border-radius:3px;background:rgba(128,128,128,.25);margin:8px 0">'
        f'<div style="height:6px;border-radius:3px;background:{EVALUATION};width:{percent:.1f}%"></div></div>'
    )
    progress = f"{snapshot.env_steps:,} of {snapshot.total_steps:,} steps ({percent:.0f}%), {speed}, {clock}"
    facts = {
        f"return ({snapshot.training_note})": format_return(snapshot.mean_return),
        f"evaluation ({snapshot.eval_note or 'none yet'})": format_return(snapshot.eval_mean),
        "best evaluation": format_return(snapshot.eval_best),
    }
    facts |= {name: format_number(value) for name, value in snapshot.infos.items()}
    facts |= {
        name.replace("_", " "): format_number(value) for name, value in list(snapshot.metrics.items())[:MOST_METRICS]
    }
    if snapshot.actors:
        facts["actors"] = snapshot.actors
    curves = _scrolled(curves_svg(snapshot.curve, snapshot.eval_curve, snapshot.total_steps))
    return _card(snapshot.title, [f"<div>{escape(progress)}</div>{bar}", curves, _table(facts), _list(notes)])


def run_html(
    title: str, facts: Mapping[str, str], training: Points = (), evaluations: Points = (), notes: Sequence[str] = ()
) -> str:
    """A run that has ended: what it reached, and its curves."""
    return _card(title, [_scrolled(curves_svg(training, evaluations)), _table(facts), _list(notes)])


def media_html(path: Path, caption: str) -> str:
    """A GIF or video, inside the notebook, so that it is still there when the file is gone."""
    kind = MEDIA_TYPES.get(path.suffix.lower())
    try:
        is_small = kind is not None and path.stat().st_size <= MOST_MEDIA_BYTES
        content = base64.b64encode(path.read_bytes()).decode("ascii") if is_small else ""
    except OSError:
        return _card(caption, [f"<div>{escape(str(path))} is not there anymore</div>"])
    if not content:
        return _card(caption, [f"<div>{escape(str(path))}</div>"])
    source = f"data:{kind};base64,{content}"
    words = escape(caption, quote=True)
    style = "display:block;max-width:100%;border-radius:6px"
    if str(kind).startswith("video"):
        shown = f'<video controls loop muted src="{source}" aria-label="{words}" style="{style}"></video>'
    else:
        shown = f'<img src="{source}" alt="{words}" style="{style}">'
    return _card(caption, [shown])


def curves_svg(training: Points, evaluations: Points, total_steps: float | None = None) -> str:
    """Return over env steps, of training and of evaluations, with their names at the lines."""
    every = [*training, *evaluations]
    if len(every) < 2:
        return ""
    low, high = min(value for _, value in every), max(value for _, value in every)
    span = (high - low) or 1.0
    last = total_steps or max(step for step, _ in every) or 1.0
    left, right, top, bottom = 56, 96, 10, 26

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = left + (_WIDTH - left - right) * min(1.0, point[0] / last)
        y = top + (_HEIGHT - top - bottom) * (1 - (point[1] - low) / span)
        return round(x, 1), round(y, 1)

    soft = 'fill="currentColor" fill-opacity=".65" font-size="11"'
    line = 'stroke="currentColor" stroke-opacity=".2"'
    parts = []
    for value in (low, high):
        height = place((0, value))[1]
        parts.append(f'<line x1="{left}" x2="{_WIDTH - right}" y1="{height}" y2="{height}" {line}/>')
        at = f'x="{left - 6}" y="{height + 4:.1f}" text-anchor="end"'
        parts.append(f"<text {at} {soft}>{format_return(value)}</text>")
    parts.append(f'<text x="{left}" y="{_HEIGHT - 8}" {soft}>0</text>')
    steps = f"{last:,.0f} env steps"
    parts.append(f'<text x="{_WIDTH - right}" y="{_HEIGHT - 8}" text-anchor="end" {soft}>{steps}</text>')
    names: list[tuple[float, float, str]] = []
    for points, color, name in ((training, TRAINING, "training"), (evaluations, EVALUATION, "evaluation")):
        if not points:
            continue
        path = " ".join(f"{x},{y}" for x, y in map(place, points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        x, y = place(points[-1])
        parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>')
        names.append((x + 7, y + 4, name))
    names.sort(key=lambda name: name[1])
    if len(names) == 2 and names[1][1] - names[0][1] < 13:  # names must not lie on each other
        middle = names[1][1]
        names = [(names[0][0], middle - 7, names[0][2]), (names[1][0], middle + 7, names[1][2])]
    parts += [f'<text x="{x}" y="{y:.1f}" fill="currentColor" font-size="12">{name}</text>' for x, y, name in names]
    words = f"Return over env steps, from {format_return(low)} to {format_return(high)}"
    width = f"width:100%;min-width:{_NARROWEST}px;max-width:{_WIDTH}px;height:auto"
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="{width}"'
    return f'<svg role="img" aria-label="{words}" {size} xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _scrolled(chart: str) -> str:
    return f'<div style="overflow-x:auto">{chart}</div>' if chart else ""


def _card(title: str, parts: Sequence[str]) -> str:
    head = f'<div style="margin-bottom:6px"><strong>{escape(title)}</strong></div>'
    return f'<div style="{_CARD}">{head}{"".join(parts)}</div>'


def _table(facts: Mapping[str, str]) -> str:
    cells = "".join(
        f'<div style="display:flex;justify-content:space-between;gap:12px">'
        f'<span style="opacity:.7">{escape(name)}</span>'
        f'<span style="font-variant-numeric:tabular-nums;overflow-wrap:anywhere">{escape(value)}</span></div>'
        for name, value in facts.items()
    )
    columns = "display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:2px 32px;margin-top:6px"
    return f'<div style="{columns}">{cells}</div>'


def _list(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul style="margin:8px 0 0;padding-left:18px;opacity:.85">{items}</ul>'
