"""Options that the commands of `rl-training zoo` share, and the selection of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.command_line.common.options import check_fraction
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.zoo.manifest import Entry, Manifest

RUNS = Path("runs/zoo")

ManifestName = Annotated[
    str,
    typer.Argument(
        metavar="MANIFEST", help="Benchmark such as classic or atari/dqn_breakout, or a YAML file.", show_default=False
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=1000, help="Number of seeds per row (seeds 0 to N-1).")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="NAME", help="Restrict to one row, algorithm or environment. Repeatable.", show_default=False
    ),
]
Long = Annotated[bool, typer.Option("--long", help="Include rows that take hours.")]
Fraction = Annotated[
    float,
    typer.Option("--budget-fraction", metavar="FRACTION", help="Only the first part of each budget."),
]
RunsDir = Annotated[Path, typer.Option("--output-dir", help="Directory that contains the runs.")]
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="DIR",
        help="Saved results of a report, for seeds whose runs are not on this machine.",
        show_default=False,
    ),
]


def select_rows(
    manifest: str, only: list[str] | None, long: bool, fraction: float
) -> tuple[Manifest, tuple[Entry, ...]]:
    """The selected rows. All mistakes in the request are reported here, before torch is imported."""
    from rl_training.zoo.manifest import load_manifest

    check_fraction(fraction)
    loaded = load_manifest(manifest)
    # A file with a single row is a request for that row, however long it takes.
    entries = loaded.select(only or (), long=long or len(loaded.entries) == 1)
    if not entries:
        request = f"--only {only[0]}" if only else manifest
        raise ConfigError(f"{request}: all selected rows take hours; add --long, or name a row with --only")
    return loaded, entries


def check_results_folder(folder: Path | None) -> None:
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--results {folder}: no such directory; `zoo table --write DIR` creates DIR/results")
