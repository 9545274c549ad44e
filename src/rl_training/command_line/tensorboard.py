"""`rl-training tensorboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text, stdout_reserved
from rl_training.errors import ConfigError


def tensorboard(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Run names, directories or patterns (default: all runs).", show_default=False
        ),
    ] = None,
    logdir: Annotated[
        Path | None,
        typer.Option("--logdir", metavar="DIR", help="Keep the event files in this directory.", show_default=False),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Start TensorBoard.")] = True,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port of TensorBoard.", show_default=False)
    ] = None,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Show runs in TensorBoard, whether or not they were trained with it.

    Writes event files from the metrics of the runs to a temporary directory, or to --logdir, and starts TensorBoard on
    this machine only. Ctrl-C ends it.
    """
    if logdir is None and not serve:
        raise ConfigError("--no-serve: pass --logdir DIR to say where the event files go")
    targets = runs or [str(output_dir)]

    from rl_training.analysis.event_files import serve_events, write_events

    if serve:
        with stdout_reserved(as_json):
            serve_events(targets, logdir=logdir, port=port, output_dir=output_dir)
        return
    assert logdir is not None
    folders = write_events(targets, logdir, output_dir=output_dir)
    if as_json:
        print_json([str(folder) for folder in folders])
    else:
        print_text(f"wrote event files of {len(folders)} run{'s' * (len(folders) != 1)} to {logdir}")
