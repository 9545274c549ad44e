"""What all plots share: style, a figure without a window, a median with its band, the axis of steps, PNG files.

Needs matplotlib (extra `plots`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.analysis.curves import Numbers, middle_half
from rl_training.errors import ConfigError, install_hint
from rl_training.storage.durable_files import atomic_write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# The color-blind-safe palette of Okabe and Ito.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.2)))
LOG_FROM = 4  # log scale from this ratio of budgets: on a linear axis short runs would be invisible
# The tones of dashboard/static/look.css, on white.
INK, SOFT_INK, EDGE, GRID, FAINT = "#16202c", "#556272", "#c3ccd6", "#e8ecf1", "#ccd3db"
STYLE: Any = {
    "text.color": INK,
    "axes.edgecolor": EDGE,
    "axes.labelcolor": SOFT_INK,
    "xtick.color": SOFT_INK,
    "ytick.color": SOFT_INK,
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "text.parse_math": False,  # a name with two dollar signs is not a formula
}
DOTS_PER_INCH = 110


def chart_style(way_out: str) -> Any:
    """A context with the style of our plots; a ConfigError with `way_out` if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(f"plots need matplotlib: {install_hint('plots')}, or {way_out}") from None
    return matplotlib.rc_context(STYLE)


def new_figure(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)  # needs no window system, whatever the user's settings are
    return figure


def draw_median(axes: Axes, steps: Numbers, values: Numbers, *, color: str, dashes: Any, label: str) -> Line2D:
    """Draw the median of `values` [seeds, points] and the band of their middle half. One point is a dot with a bar."""
    low, middle, high = middle_half(values)
    if len(steps) == 1:
        axes.vlines(steps, low, high, color=color, alpha=0.3, linewidth=6)
        (line,) = axes.plot(steps, middle, color=color, linestyle="none", marker="o", markersize=6, label=label)
        return line
    axes.fill_between(steps, low, high, color=color, alpha=0.16, linewidth=0)
    (line,) = axes.plot(steps, middle, color=color, linestyle=dashes, linewidth=1.9, label=label)
    return line


def format_step_axis(axes: Axes, first: float, ends: Sequence[float]) -> None:
    """Scale and label the axis of steps for curves that start at `first` and end at `ends`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if max(ends) > LOG_FROM * min(ends):
        axes.set_xscale("log")
        axes.set_xlim(first, max(ends) * 1.02)
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if max(ends) < 50 * min(ends) else (1.0, 3.0)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, max(ends) * 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(steps: float) -> str:
    return f"{steps / 1e6:g}M" if steps >= 1e6 else f"{steps / 1e3:g}k" if steps else "0"


def png_bytes(figure: Figure) -> bytes:
    from PIL import Image

    buffer, small = io.BytesIO(), io.BytesIO()
    figure.savefig(buffer, dpi=DOTS_PER_INCH, format="png")
    with Image.open(buffer) as picture:
        # A palette makes the file three times smaller. Without date and version, equal runs give equal files.
        picture.convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    return small.getvalue()


def save_png(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_bytes(path, png_bytes(figure))
    return path
