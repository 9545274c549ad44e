"""`rl-training resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.command_line import output
from rl_training.command_line.options import RUNS, Json, OutputDir, Quiet, Target, find_checkpoint


def resume(
    target: Target,
    total_timesteps: Annotated[
        int | None,
        typer.Option("--total-timesteps", help="New total, including the steps already done.", show_default=False),
    ] = None,
    output_dir: OutputDir = RUNS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its newest valid checkpoint.

    Pass --total-timesteps to extend a finished run.
    """
    find_checkpoint(target, output_dir)  # a wrong name fails here, before torch is imported

    from rl_training.runtime import stop_signals, workflows

    stop_signals.exit_when_stuck()
    with output.stdout_reserved(as_json):
        result = workflows.resume(
            target, total_timesteps=total_timesteps, output_dir=output_dir, show=False if quiet else None
        )
    if result.steps_per_second == 0:
        typer.echo("the run is already finished; pass --total-timesteps N to extend it", err=True)
    output.report_result(result, as_json)
