"""`rl-training check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, Quiet, check_fraction
from rl_training.command_line.common.output import print_json, print_text, stdout_reserved
from rl_training.errors import RLTrainingError


def check(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET", help="Preset name such as ppo/cartpole.", show_default=False)
    ],
    budget_fraction: Annotated[
        float, typer.Option("--budget-fraction", metavar="FRACTION", help="Stop after this fraction of the steps.")
    ] = 1.0,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Random seed (default: a seed not used for the band).")
    ] = None,
    band: Annotated[
        Path | None, typer.Option("--band", help="Band file to use instead of the packaged one.", show_default=False)
    ] = None,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="Directory for the new run directory.")] = RUNS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a preset and compare its learning curve with its band.

    A band is the range of past learning curves. Exits with code 1 if the curve leaves it.
    """
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
