"""`rl-training zoo`: benchmarks as lists, runs, tables and bands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.command_line.options import Json, Quiet
from rl_training.command_line.output import print_json, print_text, show, stdout_reserved, table
from rl_training.command_line.zoo_options import (
    RUNS,
    Fraction,
    KeptResults,
    Long,
    ManifestName,
    Only,
    RunsDir,
    Seeds,
    check_results_folder,
    select_rows,
)
from rl_training.errors import EXIT_RESUMABLE, RLTrainingError

if TYPE_CHECKING:
    from rl_training.zoo.manifest import Entry, Manifest

zoo = typer.Typer(no_args_is_help=True, help="Benchmarks: presets with references, their runs, tables and bands.")


@zoo.command("list")
def list_zoo(
    manifest: Annotated[
        str | None, typer.Argument(metavar="MANIFEST", help="Show its rows; without one, all manifests.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Manifests, or the rows of one."""
    from rl_training.zoo.manifest import list_manifests, list_single_rows, load_manifest

    if manifest is not None:
        _show_rows(load_manifest(manifest), as_json)
        return
    loaded = [load_manifest(name) for name in list_manifests()]
    rows = [
        {
            "name": each.name,
            "title": each.title,
            "rows": len(each.entries),
            "long": sum(e.row.long for e in each.entries),
        }
        for each in loaded
    ]
    if as_json:
        print_json(rows)
    else:
        show(table(["manifest", "title", "rows", "of them long"], [list(row.values()) for row in rows], ["rows"]))
        print_text(f"Rows in files of their own: {', '.join(list_single_rows())}")


def _show_rows(manifest: Manifest, as_json: bool) -> None:
    if as_json:
        print_json([_facts(entry) for entry in manifest.entries])
        return
    cells = []
    for entry in manifest.entries:
        row = entry.row
        goal = f"{row.floor:g} / {row.bar:g}" if row.floor is not None else f"<= {row.must_stay_below:g}"
        reference = "none" if row.reference is None else f"{row.reference:g}"
        cells.append((entry.name, entry.environment, f"{row.budget:,}", goal, f"{reference} ({row.source})", row.long))
    words = ["row", "env", "budget", "floor / bar", "reference", "long"]
    show(table(words, [[*cell[:-1], "long" if cell[-1] else ""] for cell in cells], ["budget"]))


def _facts(entry: Entry) -> dict[str, Any]:
    return entry.row.model_dump() | {
        "name": entry.name,
        "algorithm": entry.algorithm,
        "environment": entry.environment,
        "total_timesteps": entry.preset.total_timesteps,
    }


@zoo.command("run")
def run_zoo(
    manifest: ManifestName,
    seeds: Seeds = 5,
    only: Only = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, one thread each.")] = 2,
    fraction: Fraction = 1.0,
    long: Long = False,
    output_dir: RunsDir = RUNS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train every row and seed that is not done. Stop it at any time: the same command goes on."""
    loaded, entries = select_rows(manifest, only, long, fraction)

    from rl_training.zoo.runs import Job, is_done

    all_jobs = [Job(entry, seed, str(output_dir), fraction) for entry in entries for seed in range(seeds)]
    ahead = [job for job in all_jobs if not is_done(job)]
    if dry_run:
        facts = [
            {"row": job.entry.name, "seed": job.seed, "steps": job.stop, "run_dir": str(job.run_dir)} for job in ahead
        ]
        if as_json:
            print_json(facts)
        else:
            lines = [f"{job.entry.name} seed {job.seed}: {job.stop:,} steps in {job.run_dir}" for job in ahead]
            print_text("\n".join([*lines, f"{len(ahead)} of {len(all_jobs)} runs to do"]))
        return

    from rl_training.zoo.display import JobsDisplay
    from rl_training.zoo.launcher import launch
    from rl_training.zoo.results import gather
    from rl_training.zoo.table import make_table

    with (
        stdout_reserved(as_json),
        JobsDisplay(ahead, len(all_jobs) - len(ahead), enabled=False if quiet else None) as display,
    ):
        outcome = launch(ahead, jobs, display)
    made = make_table(entries, gather(entries, seeds, str(output_dir)), seeds, fraction)
    _show_table(loaded.title, made, seeds, as_json)
    if outcome.stopped:
        typer.echo("stopped and saved; the same command goes on", err=True)
        raise typer.Exit(EXIT_RESUMABLE)
    if outcome.failures:
        name, why = next(iter(outcome.failures.items()))
        more = f" (and {len(outcome.failures) - 1} more)" if len(outcome.failures) > 1 else ""
        raise RLTrainingError(f"{name} failed: {why}{more}; the other runs are done")


@zoo.command("table")
def table_zoo(
    manifest: ManifestName,
    seeds: Seeds = 5,
    only: Only = None,
    fraction: Fraction = 1.0,
    long: Annotated[bool, typer.Option("--long/--no-long", help="With the rows that take hours.")] = True,
    output_dir: RunsDir = RUNS,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write Markdown, CSV, JSON and pictures there.")
    ] = None,
    kept: KeptResults = None,
    as_json: Json = False,
) -> None:
    """What the seeds reached: mean, IQM with interval, time to the floor, reference and verdict. Trains nothing."""
    loaded, entries = select_rows(manifest, only, long, fraction)

    check_results_folder(kept)

    from rl_training.zoo.report import KEPT, write_report
    from rl_training.zoo.results import gather
    from rl_training.zoo.table import make_table

    if kept is None and write is not None:
        kept = write / KEPT
    results = gather(entries, seeds, str(output_dir), kept)
    made = make_table(entries, results, seeds, fraction)
    _show_table(loaded.title, made, seeds, as_json)
    if write is not None:
        for path in write_report(loaded, entries, made, results, seeds, write, fraction):
            typer.echo(f"wrote {path}", err=True)


@zoo.command("bands")
def bands_zoo(
    manifest: ManifestName,
    write: Annotated[Path, typer.Option("--write", metavar="DIR", help="Where `<algo>/<env>.json` files go.")],
    seeds: Seeds = 5,
    only: Only = None,
    budget_fraction: Fraction = 1.0,
    output_dir: RunsDir = RUNS,
    kept: KeptResults = None,
    as_json: Json = False,
) -> None:
    """Make the bands that `check` uses, of every row whose seeds all got that far; remove those of older settings."""
    _, entries = select_rows(manifest, only, True, budget_fraction)
    check_results_folder(kept)

    from rl_training.zoo.band import make_band, remove_outdated, save_band
    from rl_training.zoo.report import curves_of
    from rl_training.zoo.results import gather
    from rl_training.zoo.table import seeds_text
    from rl_training.zoo.untrained import untrained_return

    written = []
    results = gather(entries, seeds, str(output_dir), kept)
    for entry in entries:
        curves = curves_of(entry, results[entry.name], budget_fraction)
        if len(curves) == seeds:
            written.append(save_band(make_band(entry, curves, untrained_return(entry.preset)), write))
        elif (removed := remove_outdated(entry, write)) is not None:
            typer.echo(f"removed {removed}: made with other settings of {entry.name}", err=True)
    if as_json:
        print_json([str(path) for path in written])
    else:
        few = f"; the others do not have {seeds_text(seeds)} that got so far (--seeds)" * (len(written) < len(entries))
        print_text("\n".join([*(f"wrote {path}" for path in written), f"{len(written)} of {len(entries)} rows{few}"]))


def _show_table(title: str, made: list[dict[str, Any]], seeds: int, as_json: bool) -> None:
    from rl_training.zoo.comparison import COMPARED, HEADING, comparison_rows
    from rl_training.zoo.table import COLUMNS, NARROW, cells, seeds_text

    if as_json:
        print_json(made)
        return
    print_text(f"{title}, {seeds_text(seeds)}")
    places = [(COLUMNS.index(column), column) for column in NARROW]
    rows = [[_shortened(text[place], column) for place, column in places] for text in map(cells, made)]
    show(table(NARROW, rows, NARROW[1:6]))
    if against := comparison_rows(made):
        print_text(HEADING)
        show(table(COMPARED, against, COMPARED[1:-1]))


def _shortened(text: str, column: str) -> str:
    """The source of a reference is in `zoo list MANIFEST`."""
    return text.partition(" (")[0] if column == "reference" else text
