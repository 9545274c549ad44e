"""`rl-training compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text, show, table
from rl_training.terminal import print_error

if TYPE_CHECKING:
    from rl_training.analysis.run_comparison import Comparison

GROUP_HELP = "Pattern such as 'ppo-*', run names with commas, or settings such as gamma=0.9."


def compare(
    first: Annotated[str, typer.Argument(metavar="GROUP", help=GROUP_HELP, show_default=False)],
    second: Annotated[str, typer.Argument(metavar="GROUP", help="The other group of runs.", show_default=False)],
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Compare the last value of this metric; default: the last evaluation.",
            show_default=False,
        ),
    ] = None,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Compare the scores of two groups of runs.

    Shows the interquartile mean of each group and the probability that the second improves on the first, with 95 %
    intervals. Names a winner only if both groups have at least 3 seeds.
    """
    from rl_training.analysis.run_comparison import compare_runs

    comparison = compare_runs(first, second, metric=metric, output_dir=output_dir)
    for note in comparison.notes:
        print_error(f"note: {note}")
    if as_json:
        print_json(comparison.summary())
    else:
        _show(comparison)


def _show(comparison: Comparison) -> None:
    from rl_training.telemetry.console_view import format_number

    rows = [
        (
            each.group,
            each.env,
            each.seeds,
            format_number(each.iqm),
            "none, 1 run" if each.interval is None else " to ".join(map(format_number, each.interval)),
        )
        for each in comparison.scores
    ]
    show(table(["group", "env", "seeds", "IQM", "95 % interval"], rows, ["seeds", "IQM", "95 % interval"]))
    low, high = comparison.interval
    print_text(f"score: {comparison.score}, one per seed")
    print_text(
        f"probability that {comparison.groups[1]} scores higher than {comparison.groups[0]}: "
        f"{comparison.probability:.0%} (95 % interval {low:.0%} to {high:.0%})"
    )
    print_text(comparison.verdict)
