"""`rl-training check`: does a preset still learn as its band says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.options import RUNS, Json, Quiet, check_fraction
from rl_training.command_line.output import print_json, print_text, stdout_reserved
from rl_training.errors import RLTrainingError


def check(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="Such as ppo/cartpole.", show_default=False)],
    budget_fraction: Annotated[
        float, typer.Option("--budget-fraction", metavar="SHARE", help="Stop after this share of the preset's steps.")
    ] = 1.0,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="One that the band was not made from, unless said.")
    ] = None,
    band: Annotated[Path | None, typer.Option("--band", help="A band file of your own.", show_default=False)] = None,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="Where the run directory is made.")] = RUNS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a preset and fail (exit code 1) when its learning curve leaves the band of the stored seeds."""
    check_fraction(budget_fraction)

    from rl_training.zoo.band_check import check_preset

    with stdout_reserved(as_json):
        result = check_preset(
            preset,
            seed=seed,
            fraction=budget_fraction,
            output_dir=str(output_dir),
            band_file=band,
            show=False if quiet else None,
        )
    if as_json:
        print_json(result.summary())
    if not result.verdict.passed:
        raise RLTrainingError(result.sentence())
    if not as_json:
        print_text(result.sentence())
