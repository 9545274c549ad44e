"""`rl-training reproduce`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from rl_training import terminal
from rl_training.command_line.common import output
from rl_training.command_line.common.options import Json
from rl_training.errors import ConfigError
from rl_training.text import one_line


def reproduce(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Crash file, such as runs/<name>/crash/*.json.")],
    as_json: Json = False,
) -> None:
    """Replay an environment crash.

    Uses the recorded environment, seed and actions, in a single process.
    """
    if not file.is_file():
        raise ConfigError(f"FILE: {file} does not exist; look for crash files in runs/<name>/crash/")

    import faulthandler
    import traceback

    from rl_training.envs.failures import EnvFailed
    from rl_training.playback import crash_replay

    with contextlib.suppress(OSError, ValueError):  # stderr may not be a file
        faulthandler.enable()  # prints a traceback when native code of the environment ends the process
    terminal.print_error(f"recorded: {one_line(crash_replay.read_crash_file(file).reason)}")
    try:
        with output.stdout_reserved(as_json):
            steps = crash_replay.reproduce(file)
    except EnvFailed as error:
        if error.__cause__ is not None:
            terminal.print_error(*"".join(traceback.format_exception(error.__cause__)).splitlines())
        raise
    if as_json:
        output.print_json({"failed": False, "steps": steps})
    else:
        output.print_text(f"no failure in {steps} steps: the crash depends on more than seed and actions")
