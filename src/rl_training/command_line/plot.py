"""`rl-training plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text
from rl_training.terminal import print_error


def plot(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run name or directory, pattern such as 'ppo-*', or setting such as gamma=0.9.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File: .png, .html or .svg.")] = Path(
        "plot.png"
    ),
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Metric to draw. Repeatable (default: eval_mean_return).",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="KEY", help="Group runs by this setting only.", show_default=False),
    ] = None,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Draw metrics of runs over environment steps.

    Runs that differ only in their seed are one line: the median of the seeds, with a band over their middle half.
    """
    from rl_training.analysis.run_plot import DEFAULT_METRIC, plot_runs

    drawn = plot_runs(runs, output, metrics=metrics or (DEFAULT_METRIC,), by=by, output_dir=output_dir)
    for note in drawn.notes:
        print_error(f"note: {note}")
    if as_json:
        print_json(drawn.summary())
        return
    for group in drawn.groups:
        print_text(f"{group.label}: {group.seeds} seed{'s' if group.seeds != 1 else ''}")
    print_text(f"wrote {drawn.path}")
