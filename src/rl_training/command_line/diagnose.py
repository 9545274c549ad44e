"""`rl-training diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text
from rl_training.text import clean_text


def diagnose(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run names or directories, patterns, or `latest`.", show_default=False),
    ],
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Say in words what seems wrong with the training of a run.

    Reads the metrics of finished, interrupted or running runs. The findings are those that training shows by itself.
    """
    from rl_training.analysis.run_group import select_runs
    from rl_training.diagnosis.stored_diagnosis import diagnose_run

    found = {run.path.resolve(): run for text in runs for run in select_runs(text, output_dir)}
    diagnoses = [diagnose_run(run.path) for run in found.values()]
    if as_json:
        print_json({"runs": [diagnosis.to_json() for diagnosis in diagnoses]})
        return
    for diagnosis in diagnoses:
        name = clean_text(diagnosis.run_dir.name, 100)
        count = len(diagnosis.findings)
        found_text = "no findings" if not count else f"{count} finding{'s' * (count != 1)}"
        print_text(f"{name}: {found_text} in {diagnosis.env_steps:,} steps")
        for finding in diagnosis.findings:
            print_text(f"  {finding}")
