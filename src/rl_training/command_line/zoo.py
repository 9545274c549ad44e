"""`rl-training zoo`: list benchmarks, run them, print tables and make bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.command_line.common.clock_options import (
    CLOCK_RUNS,
    BoardName,
    BudgetSeconds,
    Checkout,
    ClockRunsDir,
    FirstSeed,
    Minutes,
    OnlyTasks,
    Repeats,
    SeedCount,
    Sides,
    Warm,
    select_tasks,
)
from rl_training.command_line.common.options import Json, Quiet
from rl_training.command_line.common.output import print_json, print_text, show, stdout_reserved, table
from rl_training.command_line.common.zoo_options import (
    RUNS,
    Fraction,
    Long,
    ManifestName,
    Only,
    ResultsFolder,
    RunsDir,
    Seeds,
    check_results_folder,
    select_rows,
)
from rl_training.errors import EXIT_RESUMABLE, ConfigError, RLTrainingError
from rl_training.program import call
from rl_training.terminal import print_error

if TYPE_CHECKING:
    from rl_training.zoo.clock.board import Task
    from rl_training.zoo.manifest import Entry, Manifest

zoo = typer.Typer(no_args_is_help=True, help="Run benchmarks and compare their scores with references.")


@zoo.command("list")
def list_zoo(
    manifest: Annotated[
        str | None, typer.Argument(metavar="MANIFEST", help="Show the rows of this benchmark (default: list all).")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the benchmarks, or the rows of one."""
    from rl_training.zoo.clock.board import list_boards
    from rl_training.zoo.manifest import list_manifests, list_single_rows, load_manifest

    if manifest is not None:
        _show_rows(load_manifest(manifest), as_json)
        return
    manifests = [load_manifest(name) for name in list_manifests()]
    rows = [
        {
            "name": each.name,
            "title": each.title,
            "rows": len(each.entries),
            "long": sum(e.row.long for e in each.entries),
        }
        for each in manifests
    ]
    if as_json:
        print_json(rows)
    else:
        show(table(["benchmark", "title", "rows", "long rows"], [list(row.values()) for row in rows], ["rows"]))
        print_text(f"Single rows: {', '.join(list_single_rows())}")
        print_text(f"Boards of wall time, for `{call('zoo', 'clock')}`: {', '.join(list_boards())}")


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
    headers = ["row", "env", "budget", "floor / bar", "reference", "long"]
    show(table(headers, [[*cell[:-1], "long" if cell[-1] else ""] for cell in cells], ["budget"]))


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
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=256, help="Number of parallel runs, one thread each.")] = 2,
    fraction: Fraction = 1.0,
    long: Long = False,
    output_dir: RunsDir = RUNS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs without training.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train all unfinished rows and seeds of a benchmark.

    After an interruption, run the same command to continue.
    """
    benchmark, entries = select_rows(manifest, only, long, fraction)

    from rl_training.zoo.runs import Job, is_done

    all_jobs = [Job(entry, seed, str(output_dir), fraction) for entry in entries for seed in range(seeds)]
    pending = [job for job in all_jobs if not is_done(job)]
    if dry_run:
        facts = [
            {"row": job.entry.name, "seed": job.seed, "steps": job.stop, "run_dir": str(job.run_dir)} for job in pending
        ]
        if as_json:
            print_json(facts)
        else:
            plan = [f"{job.entry.name} seed {job.seed}: {job.stop:,} steps in {job.run_dir}" for job in pending]
            print_text(*plan, f"{len(pending)} of {len(all_jobs)} runs left")
        return

    from rl_training.experiment.jobs_display import JobsDisplay
    from rl_training.experiment.launcher import launch
    from rl_training.zoo.results import gather
    from rl_training.zoo.table import make_table

    with (
        stdout_reserved(as_json),
        JobsDisplay(pending, len(all_jobs) - len(pending), enabled=False if quiet else None) as display,
    ):
        outcome = launch(pending, jobs, display)
    lines = make_table(entries, gather(entries, seeds, str(output_dir)), seeds, fraction)
    _show_table(benchmark.title, lines, seeds, as_json)
    _end(outcome.failures, "stopped and saved" if outcome.stopped else None)


@zoo.command("table")
def table_zoo(
    manifest: ManifestName,
    seeds: Seeds = 5,
    only: Only = None,
    fraction: Fraction = 1.0,
    long: Annotated[bool, typer.Option("--long/--no-long", help="Include rows that take hours.")] = True,
    output_dir: RunsDir = RUNS,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="DIR", help="Write Markdown, CSV, JSON and plots to this directory."),
    ] = None,
    results_folder: ResultsFolder = None,
    as_json: Json = False,
) -> None:
    """Print the scores, references and verdicts of finished runs, without training."""
    benchmark, entries = select_rows(manifest, only, long, fraction)
    check_results_folder(results_folder)

    from rl_training.zoo.report import RESULTS_FOLDER, write_report
    from rl_training.zoo.results import gather
    from rl_training.zoo.table import make_table

    if results_folder is None and write is not None:
        results_folder = write / RESULTS_FOLDER
    results = gather(entries, seeds, str(output_dir), results_folder)
    lines = make_table(entries, results, seeds, fraction)
    _show_table(benchmark.title, lines, seeds, as_json)
    if write is not None:
        for path in write_report(benchmark, entries, lines, results, seeds, write, fraction):
            print_error(f"wrote {path}")


@zoo.command("bands")
def bands_zoo(
    manifest: ManifestName,
    write: Annotated[Path, typer.Option("--write", metavar="DIR", help="Directory for the <algo>/<env>.json files.")],
    seeds: Seeds = 5,
    only: Only = None,
    budget_fraction: Fraction = 1.0,
    output_dir: RunsDir = RUNS,
    results_folder: ResultsFolder = None,
    as_json: Json = False,
) -> None:
    """Build the reference bands that `rl-training check` uses.

    A band needs all seeds of its row. Outdated bands are removed.
    """
    _, entries = select_rows(manifest, only, True, budget_fraction)
    check_results_folder(results_folder)

    from rl_training.zoo.band import make_band, remove_outdated, save_band
    from rl_training.zoo.report import curves_of
    from rl_training.zoo.results import gather
    from rl_training.zoo.table import seeds_text
    from rl_training.zoo.untrained import untrained_return

    written = []
    results = gather(entries, seeds, str(output_dir), results_folder)
    for entry in entries:
        curves = curves_of(entry, results[entry.name], budget_fraction)
        if len(curves) == seeds:
            written.append(save_band(make_band(entry, curves, untrained_return(entry.preset)), write))
        elif (removed := remove_outdated(entry, write)) is not None:
            print_error(f"removed {removed}: made with older settings of {entry.name}")
    if as_json:
        print_json([str(path) for path in written])
    else:
        missing = f"; the others have fewer than {seeds_text(seeds)} (--seeds)" * (len(written) < len(entries))
        summary = f"{len(written)} of {len(entries)} rows{missing}"
        print_text(*(f"wrote {path}" for path in written), summary)


@zoo.command("clock")
def clock_zoo(
    board: BoardName,
    only: OnlyTasks = None,
    sides: Sides = None,
    seeds: SeedCount = None,
    first_seed: FirstSeed = 0,
    budget: BudgetSeconds = None,
    minutes: Minutes = None,
    long: Annotated[bool, typer.Option("--long", help="Include tasks that take hours.")] = False,
    warm: Warm = False,
    repeats: Repeats = 1,
    checkout: Checkout = None,
    output_dir: ClockRunsDir = CLOCK_RUNS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs that are left without running.")] = False,
    only_table: Annotated[bool, typer.Option("--table", help="Run nothing; use the results that are there.")] = False,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="DIR", help="Write the page, a picture and the results to this directory."),
    ] = None,
    results_folder: ResultsFolder = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure wall time: seconds to a solved task, or the score after minutes, of this library and of others.

    Run it on an idle machine. After an interruption, run the same command to continue.
    """
    chosen, tasks = select_tasks(board, only, sides, budget, minutes, long)
    numbers = range(first_seed, first_seed + (seeds or chosen.seeds))
    if write is not None and first_seed:
        raise ConfigError("--write: the page shows seeds from 0 on, leave --first-seed out")
    check_results_folder(results_folder)

    from rl_training.zoo.clock.clock_page import stored_results, write_clock
    from rl_training.zoo.clock.clock_run import Sat, plan_sitting, sit
    from rl_training.zoo.clock.clock_table import clock_lines

    sat = Sat()
    if not only_table:
        plan = plan_sitting(tasks, numbers, output_dir, checkout, warm=warm, start=not dry_run)
        print_error(*plan.left_out)
        if dry_run:
            facts = [
                {"task": each.task.name, "side": each.side.name, "seed": each.seed, "seconds": each.task.limit}
                for each in plan.turns
            ]
            if as_json:
                print_json(facts)
            else:
                texts = [f"{each.title}: at most {each.task.limit:g} s" for each in plan.turns]
                total = f"{len(plan.turns)} runs left, {plan.done} done; at most {plan.longest_seconds / 3600:.1f} h"
                print_text(*texts, total)
            return
        sat = sit(plan, output_dir, warm=warm, repeats=repeats, tell=(lambda text: None) if quiet else print_error)
    folders = [output_dir, *stored_results(write, results_folder)]
    lines = clock_lines(tasks, numbers, folders, sat.failures)
    _show_clock(chosen.title, tasks, lines, as_json)
    if write is not None:
        for path in write_clock(chosen, write, output_dir):
            print_error(f"wrote {path}")
    _end(sat.failures, "stopped" if sat.stopped else None)


def _end(failures: Mapping[str, str], stopped: str | None) -> None:
    """The exit code of a command with several runs, and a line if something is left to do."""
    if stopped is not None:
        print_error(f"{stopped}; run the same command to continue")
        raise typer.Exit(EXIT_RESUMABLE)
    if failures:
        name, why = next(iter(failures.items()))
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise RLTrainingError(f"{name} failed: {why}{more}; all other runs are finished")


def _show_clock(title: str, tasks: Sequence[Task], lines: list[dict[str, Any]], as_json: bool) -> None:
    from rl_training.zoo.clock.clock_table import SOLVED_COLUMNS, remarks, score_cells, score_columns, solved_cells

    if as_json:
        print_json(lines)
        return
    print_text(title)
    for task in tasks:
        of_task = [line for line in lines if line["task"] == task.name]
        if task.minutes:
            print_text(f"{task.name}: {task.text.env}")
            columns, rows = score_columns(task), [score_cells(line) for line in of_task]
        else:
            print_text(f"{task.name}: {task.text.env} at {task.text.threshold:g}")
            columns, rows = list(SOLVED_COLUMNS), [solved_cells(line) for line in of_task]
        show(table(columns, rows, columns[1:]))
        print_text(*remarks(of_task))


def _show_table(title: str, lines: list[dict[str, Any]], seeds: int, as_json: bool) -> None:
    from rl_training.zoo.comparison import COMPARED, HEADING, comparison_rows
    from rl_training.zoo.table import COLUMNS, NARROW, cells, seeds_text

    if as_json:
        print_json(lines)
        return
    print_text(f"{title}, {seeds_text(seeds)}")
    places = [(COLUMNS.index(column), column) for column in NARROW]
    rows = [[_shortened(text[place], column) for place, column in places] for text in map(cells, lines)]
    show(table(NARROW, rows, NARROW[1:6]))
    if comparison := comparison_rows(lines):
        print_text(HEADING)
        show(table(COMPARED, comparison, COMPARED[1:-1]))


def _shortened(text: str, column: str) -> str:
    """Drop the source of a reference; `zoo list MANIFEST` shows it."""
    return text.partition(" (")[0] if column == "reference" else text
