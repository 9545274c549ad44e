"""`rl-training dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text
from rl_training.terminal import print_error

PORT = 8777


def dashboard(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Run names, directories, patterns or settings (default: all runs).",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; if it is taken, the next one.")] = PORT,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", metavar="FILE.html", help="Write one HTML file and serve nothing.", show_default=False
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Show runs in the browser, live.

    Serves on this machine only, reads run directories and never writes to them. Ctrl-C ends it. With --export, writes
    the same pages as one file that opens without a network.
    """
    if export is not None:
        from rl_training.dashboard.export_file import export_dashboard

        written = export_dashboard(runs or [], export, output_dir=output_dir)
        for note in written.notes:
            print_error(f"note: {note}")
        if as_json:
            print_json(written.summary())
            return
        size = written.path.stat().st_size / 1e6
        print_text(f"wrote {written.path} ({written.runs} run{'s' * (written.runs != 1)}, {size:.1f} MB)")
        return

    from rl_training.dashboard.server import serve_dashboard

    # The address is for people; the page is the output.
    tell = print_error if as_json else print_text
    serve_dashboard(runs or [], output_dir=output_dir, port=port, open_browser=open_browser, tell=tell)
