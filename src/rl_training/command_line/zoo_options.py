"""Options that the commands of `rl-training zoo` share, and the rows that they select."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.command_line.options import check_fraction
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.zoo.manifest import Entry, Manifest

RUNS = Path("runs/zoo")

ManifestName = Annotated[
    str,
    typer.Argument(metavar="MANIFEST", help="Such as classic, atari/dqn_breakout, or a YAML file.", show_default=False),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Seeds 0 to N-1 of every row.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="WORD", help="A row, an algorithm or an env word; may be repeated.", show_default=False
    ),
]
Long = Annotated[bool, typer.Option("--long", help="Include the rows that take hours.")]
Fraction = Annotated[
    float,
    typer.Option("--budget-fraction", metavar="SHARE", help="Only this share of each budget, from its beginning."),
]
RunsDir = Annotated[Path, typer.Option("--output-dir", help="Where the run directories are.")]
KeptResults = Annotated[
    Path | None,
    typer.Option(
        "--results", metavar="DIR", help="`results` of a report, for seeds whose runs are not here.", show_default=False
    ),
]


def select_rows(
    manifest: str, only: list[str] | None, long: bool, fraction: float
) -> tuple[Manifest, tuple[Entry, ...]]:
    """Everything that can be wrong with what was asked for is told here, before torch is imported."""
    from rl_training.zoo.manifest import load_manifest

    check_fraction(fraction)
    loaded = load_manifest(manifest)
    # The file of one row names it: no second word is needed to run it, however long it takes.
    entries = loaded.select(only or (), long=long or len(loaded.entries) == 1)
    if not entries:
        asked = f"--only {only[0]}: all of these" if only else f"{manifest}: all of its"
        raise ConfigError(f"{asked} rows are long ones; --long includes them, --only with the name of a row runs it")
    return loaded, entries


def check_results_folder(kept: Path | None) -> None:
    if kept is not None and not kept.is_dir():
        raise ConfigError(f"--results {kept}: no such folder; `zoo table --write DIR` makes DIR/results")
