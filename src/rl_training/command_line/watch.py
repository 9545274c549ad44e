"""`rl-training watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import command, print_json, print_text
from rl_training.config.own_classes import trust_option


def watch(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run name or directory, or `latest`.", show_default=False)
    ] = "latest",
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Follow a run that another terminal trains.

    Ends when the run ends, or with Ctrl-C; the run itself is not affected. With --json, prints its metric lines.
    """
    from rl_training.analysis.run_group import find_run
    from rl_training.analysis.run_watch import watch_run

    found = find_run(run, output_dir)
    path = found.path
    status = watch_run(path, each_line=print_json if as_json else None)
    if as_json:
        return
    print_text(f"the run is {status}")
    if status == "interrupted":
        print_text(f"  continue  {command('resume', path, *trust_option(found.config.model.encoder))}")
