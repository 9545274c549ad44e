"""`rl-training check-env`."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.command_line.common import findings_view, output
from rl_training.command_line.common.options import Json
from rl_training.errors import EnvError


def check_env(
    env: Annotated[
        str, typer.Argument(metavar="ENV", help="Environment id, or module:EnvId for your own.", show_default=False)
    ],
    env_kwargs: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Keyword of the environment, such as image=true. Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check whether an environment can be trained on.

    Prints ok, warn or FAIL for each check, with the fix. Exits with code 3 if the environment cannot be used.
    """
    from rl_training.config.loading import load_config

    # A config with this env: its checks of the keywords, and YAML values, are those of a run.
    config = load_config({"algo": "ppo", "env_id": env}, [f"env_kwargs.{pair}" for pair in env_kwargs or []])

    from rl_training.checkup.env_check import env_findings
    from rl_training.checkup.finding import Report

    findings = []
    with output.stdout_reserved(as_json):
        for finding in env_findings(config.env_id, config.training_kwargs):
            findings.append(finding)
            if not as_json:
                findings_view.show_finding(finding)
    report = Report(tuple(findings))
    findings_view.finish(report, report.to_json() if as_json else None, EnvError)
