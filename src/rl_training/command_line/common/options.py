"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from rl_training.errors import CheckpointError, ConfigError
from rl_training.terminal import print_error
from rl_training.text import one_line

RUNS = Path("runs")
MOST_EPISODES = 1_000_000
LARGEST_SEED = 2**63 - 1 - MOST_EPISODES  # episode i uses seed + i


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
Episodes = Annotated[int, typer.Option("--episodes", min=1, max=MOST_EPISODES, help="Number of episodes.")]
EvalSeed = Annotated[
    int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Seed of the first episode; episode i uses seed + i.")
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps", min=1, help="Cut an episode after this many steps; default: eval_max_steps.", show_default=False
    ),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        help="Module whose encoder a checkpoint may use; may be repeated.",
        show_default=False,
    ),
]
Stochastic = Annotated[bool, typer.Option("--stochastic", help="Sample actions instead of acting greedily.")]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy", help="Policy to play, if the agent has several: kept or last for td7.", show_default=False
    ),
]
Checkpoint = Annotated[
    Which | None,
    typer.Option("--checkpoint", help="Which checkpoint to use: the newest (default) or the best.", show_default=False),
]


def check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ConfigError(f"--budget-fraction: {fraction:g} is not valid, must be above 0 and at most 1")


class Found(NamedTuple):
    """The checkpoint that a target names, and the damaged ones that are newer and were skipped."""

    path: Path
    skipped: list[str]


def find_checkpoint(target: str, output_dir: Path, checkpoint: Which | None = None) -> Found:
    """Find the checkpoint that a target names. Does not import torch, so a wrong name fails at once."""
    from rl_training.storage.checkpoints import resolve_checkpoint

    which = checkpoint.word if checkpoint is not None else None
    try:
        path = resolve_checkpoint(target, output_dir, which=which, segments="skip")
        named_itself = Path(target).name == path.name  # nothing was chosen, so nothing was skipped
        return Found(path, [] if named_itself else _skipped_before(path))
    except OSError as error:  # for example a name that is too long for the file system
        raise CheckpointError(f"{one_line(target, 100)}: no such checkpoint or run ({error.strerror})") from None


def _skipped_before(path: Path) -> list[str]:
    """The problems of the checkpoints that are newer than the chosen one. Each was skipped because it has one."""
    from rl_training.storage.checkpoints import list_checkpoints, load_checkpoint, verify_checkpoint
    from rl_training.storage.durable_files import USE_ANOTHER

    newest_first = list_checkpoints(path.parent.parent, "agent" if path.name.startswith("best-") else "resume")
    skipped = []
    for newer in newest_first[: newest_first.index(path)] if path in newest_first else []:
        try:
            load_checkpoint(newer)
            problems = verify_checkpoint(newer)
        except CheckpointError as error:
            problems = [str(error)]
        skipped += [problem.removesuffix(USE_ANOTHER) for problem in problems[:1]]
    return skipped


def report_skipped(skipped: Sequence[str]) -> None:
    """Say on stderr that a command does not use the newest checkpoint."""
    for problem in skipped:
        print_error(f"skipped a damaged checkpoint: {one_line(problem)}")
