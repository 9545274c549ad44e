"""`rl-training diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text, show, table

if TYPE_CHECKING:
    from rl_training.analysis.run_diff import RunDiff

Run = Annotated[str, typer.Argument(metavar="RUN", help="Run name or directory, or `latest`.", show_default=False)]


def diff(first: Run, second: Run, output_dir: OutputDir = RUNS, as_json: Json = False) -> None:
    """Show what differs between two runs.

    Compares settings, versions and machines, and finds the evaluation at which the curves part. Exits with code 1 if
    anything differs.
    """
    from rl_training.analysis.run_diff import diff_runs

    found = diff_runs(first, second, output_dir=output_dir)
    if as_json:
        print_json(found.summary())
    else:
        _show(found)
    if not found.is_equal:
        raise typer.Exit(1)


def _show(found: RunDiff) -> None:
    from rl_training.analysis.run_group import setting_text

    rows = [
        (kind, each.name, setting_text(each.first), setting_text(each.second))
        for kind, differences in (("setting", found.settings), ("version", found.versions), ("machine", found.machine))
        for each in differences
    ]
    if rows:
        show(table(["kind", "name", found.first, found.second], rows))
    else:
        print_text("settings, versions and machine: the same")
    print_text(f"curves: {found.curves}")
