"""`rl-training resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.command_line.common import output
from rl_training.command_line.common.options import (
    RUNS,
    Json,
    OutputDir,
    Quiet,
    Trust,
    find_checkpoint,
    report_skipped,
)
from rl_training.terminal import print_error


def resume(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Run name, run directory, checkpoint, or `latest`.", show_default=False),
    ],
    total_timesteps: Annotated[
        int | None,
        typer.Option("--total-timesteps", help="New total, including the steps already done.", show_default=False),
    ] = None,
    trackers: Annotated[
        bool, typer.Option("--trackers", help="Use the trackers and sinks of a run that someone else started, too.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of the machine or the reports, such as compile=off. Repeatable.",
            show_default=False,
        ),
    ] = None,
    trust: Trust = None,
    output_dir: OutputDir = RUNS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its newest valid checkpoint.

    Pass --total-timesteps to extend a finished run.
    """
    _, skipped = find_checkpoint(target, output_dir)  # a wrong name fails here, before torch is imported
    if quiet:  # otherwise the display says it
        report_skipped(skipped)

    from rl_training.runtime import stop_signals, workflows

    stop_signals.exit_when_stuck()
    with output.stdout_reserved(as_json):
        result = workflows.resume(
            target,
            total_timesteps=total_timesteps,
            overrides=overrides or (),
            output_dir=output_dir,
            show=False if quiet else None,
            trackers=True if trackers else None,
            trust=trust or (),
        )
    if result.steps_per_second > 0 or result.interrupted:
        output.report_result(result, as_json)
        output.exit_if_evaluation_failed([result])
        return
    print_error(
        f"the run is already finished after {result.env_steps:,} steps, so nothing was trained; "
        f"extend it with: {output.longer_command(result)}"
    )
    if as_json:
        output.print_json(result.summary(), keep=True)
    output.exit_if_evaluation_failed([result])
