"""`rl-training doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.common import findings_view, output
from rl_training.command_line.common.options import Config, Json
from rl_training.command_line.common.run_source import source_of
from rl_training.errors import ConfigError, RLTrainingError

LONGEST_PROBE = 600.0


def doctor(
    config: Config = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="ENV",
            help="Plan a run of CONFIG, then the name of an algorithm, on this environment: as `train` would.",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a setting, such as num_envs=16. Repeatable.",
            show_default=False,
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Directory of the runs, to check.", show_default=False)
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="Length of the speed test.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Check this machine and, with CONFIG, a planned run.

    Prints ok, warn or FAIL for each check, with the fix. Exits with code 1 if a check fails.
    """
    if not 0 < seconds <= LONGEST_PROBE:
        raise ConfigError(f"--seconds: {seconds:g} is not valid, must be above 0 and at most {LONGEST_PROBE:g}")
    if overrides and config is None and env is None:
        raise ConfigError("--set: needs a CONFIG whose settings it overrides, such as ppo/cartpole")

    from rl_training.checkup.examination import Examination

    planned = None
    if config is not None or env is not None:
        from rl_training.config.loading import load_config

        planned = load_config(source_of("doctor", config, None, env), overrides or [])
    folder = str(output_dir) if output_dir is not None else planned.output_dir if planned is not None else "runs"
    checkup = Examination(folder, planned, seconds)
    with output.stdout_reserved(as_json):
        for finding in checkup.examine():
            if not as_json:
                findings_view.show_finding(finding)
    findings_view.finish(checkup.report(), checkup.to_json() if as_json else None, RLTrainingError)
