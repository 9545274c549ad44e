"""Learning curves on the page of an algorithm: a small picture for each preset whose runs are kept, as SVG.

The lines have the colors of the site, on light pages and on dark ones, and their words are text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path

from rl_training.analysis.curves import Curve, middle_half, on_grid
from rl_training.zoo.manifest import Entry, list_manifests, load_manifest
from rl_training.zoo.results import load_results

WIDTH, HEIGHT = 300, 160
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 10, 24
POINTS = 60
NEARLY_WHOLE = 0.9  # from this share of the budget on, a run is not called a beginning


def curves_of(algorithm: str, folders: Sequence[Path]) -> str:
    """All pictures of an algorithm as one block of HTML; empty without kept runs."""
    figures = [figure(entry, curves) for entry, curves in kept_curves(algorithm, folders)]
    return f'<div class="curves">{"".join(figures)}</div>' if figures else ""


@cache
def benchmark_rows() -> list[tuple[str, Entry]]:
    """Each row of all benchmarks with its family. To read them takes a while."""
    return [(family, entry) for family in list_manifests() for entry in load_manifest(family).entries]


def kept_curves(algorithm: str, folders: Sequence[Path]) -> Iterator[tuple[Entry, list[Curve]]]:
    """Each row of the benchmarks with the curves of its seeds, from the folder that has most of them."""
    for _, entry in benchmark_rows():
        if entry.algorithm != algorithm:
            continue
        every = [[result.curve for result in load_results(entry, folder).values()] for folder in folders]
        found = max(([curve for curve in curves if curve.steps.size] for curves in every), key=len)
        if found:
            yield entry, found


def figure(entry: Entry, curves: list[Curve]) -> str:
    """The median of the seeds with the band of their middle half, and the bar that the end of a run must reach. A
    control has a limit in its place, which it must not reach."""
    steps, values = on_grid(curves, POINTS)
    low, middle, high = middle_half(values)
    last, budget = float(steps[-1]), entry.preset.total_timesteps
    is_whole = last >= NEARLY_WHOLE * budget
    limit = entry.row.must_stay_below
    bar = (entry.row.bar if limit is None else limit) if is_whole else None
    shown = [float(value) for value in (*low, *high, *([] if bar is None else [bar]))]
    ys = ticks(min(shown), max(shown))
    bottom, top = min(min(shown), ys[0]), max(max(shown), ys[-1])
    top += (top == bottom) * 1.0

    def x(step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / last, 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (top - value) / (top - bottom), 1)

    def path(line: Sequence[float]) -> list[str]:
        return [f"{x(step)},{y(value)}" for step, value in zip(steps, line, strict=True)]

    parts = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" y2="{y(value)}"/>' for value in ys]
    parts += [f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>' for value in ys]
    parts += [
        f'<text x="{x(step)}" y="{HEIGHT - 6}" text-anchor="{"start" if step == 0 else "middle"}">{short(step)}</text>'
        for step in ticks(0.0, last)
    ]
    if len(curves) > 1:
        parts.append(f'<polygon class="band" points="{" ".join([*path(low), *reversed(path(high))])}"/>')
    if bar is not None:
        parts.append(f'<line class="bar" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(bar)}" y2="{y(bar)}"/>')
    parts.append(f'<polyline class="median" points="{" ".join(path(middle))}"/>')
    seeds = f"{len(curves)} seeds" if len(curves) > 1 else "one seed"
    end = "" if bar is None else f"; the {'bar' if limit is None else 'limit'} is {bar:g}"
    words = (
        f"Mean return of {entry.name} over env steps, {seeds}: {middle[0]:.4g} at step {steps[0]:,.0f},"
        f" {middle[-1]:.4g} at step {last:,.0f}{end}"
    )
    about = f"{entry.name.rpartition('/')[2]}, {seeds}" + ("" if is_whole else f", the first {last / budget:.0%}")
    drawn = f'<svg role="img" aria-label="{escape(words)}" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'
    title = f"<figcaption>{escape(entry.environment)} <small>{escape(about)}</small></figcaption>"
    return f"<figure>{title}{drawn}</figure>"


def ticks(low: float, high: float) -> list[float]:
    """Two to five round numbers from `low` to `high`; the one number there is if both are equal."""
    if not high > low:
        return [low]
    rough = (high - low) / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def short(steps: float) -> str:
    return f"{steps / 1e6:g}M" if steps >= 1e6 else f"{steps / 1e3:g}k" if steps >= 1e3 else f"{steps:g}"
