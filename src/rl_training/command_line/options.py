"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

from rl_training.errors import ConfigError

RUNS = Path("runs")


class Which(str, Enum):
    latest = "latest"
    best = "best"

    @property
    def word(self) -> Literal["latest", "best"]:
        return "best" if self is Which.best else "latest"


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="Run name, run directory, checkpoint, or `latest` / `best`.", show_default=False
    ),
]
Config = Annotated[
    str | None,
    typer.Argument(metavar="CONFIG", help="Preset name such as ppo/cartpole, or a YAML file.", show_default=False),
]
OutputDir = Annotated[Path, typer.Option("--output-dir", help="Directory that contains the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Hide the progress display.")]
Episodes = Annotated[int, typer.Option("--episodes", min=1, help="Number of episodes.")]
EvalSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the first episode; episode i uses seed + i.")]
Stochastic = Annotated[bool, typer.Option("--stochastic", help="Sample actions instead of acting greedily.")]
Checkpoint = Annotated[
    Which | None,
    typer.Option("--checkpoint", help="Which checkpoint to use: the newest (default) or the best.", show_default=False),
]


def check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ConfigError(f"--budget-fraction: {fraction:g} is not valid, must be above 0 and at most 1")


def find_checkpoint(target: str, output_dir: Path, checkpoint: Which | None = None) -> Path:
    """Find the checkpoint that a target names. Does not import torch, so a wrong name fails at once."""
    from rl_training.storage.checkpoints import resolve_checkpoint

    which = checkpoint.word if checkpoint is not None else None
    return resolve_checkpoint(target, output_dir, which=which, segments="skip")
