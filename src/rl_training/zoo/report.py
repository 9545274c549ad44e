"""What `zoo table --write` leaves: a page, the figures as CSV and JSON, and the pictures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage.durable_files import atomic_write_text, read_json
from rl_training.telemetry.metric_lines import clean_line
from rl_training.zoo.comparison import comparison_section
from rl_training.zoo.curves import Curve
from rl_training.zoo.manifest import Entry, Manifest, list_manifests
from rl_training.zoo.plots import plot_environment, plot_overview
from rl_training.zoo.results import Results, keep
from rl_training.zoo.runs import same_settings, stop_at
from rl_training.zoo.table import Line, csv_text, markdown, protocols_text

KEPT = "results"  # beside the page

WHOLE = """Presets are trained within their budgets, and the LAST checkpoint of each finished seed is evaluated. A row
passes when at least 4 of 5 seeds reach the floor and the median reaches the bar; a control (an agent without what the
task needs) passes when every seed stays below its ceiling."""
PART = """Every run is the beginning of one of the whole budget, and its score is its last evaluation by then: nothing
passes or fails here, and references are of whole budgets."""
RULE = """IQM is the interquartile mean with its 95 % stratified bootstrap interval, which of five seeds holds the true
mean in about nine cases of ten. Steps and minutes to floor: median, over the seeds that got there (how many, where not
all did), of the first evaluation during training at or above the floor (10 episodes on other seeds). Area: mean height
of the evaluation curve. A dash stands where no seed got there, or where the curves were not kept. Minutes are wall
time on one thread, with whatever else the machine had to do."""


def curves_of(entry: Entry, results: Results, fraction: float = 1.0) -> list[Curve]:
    """Of the seeds that are done and have been evaluated by then; of some only the score was kept."""
    stop = stop_at(entry, fraction)
    curves = [each.curve.until(stop) for each in results.values() if each.done(stop, fraction)]
    return [curve for curve in curves if curve.steps.size]


def drawn_curves(entry: Entry, results: Results, fraction: float = 1.0) -> list[Curve]:
    """For a picture: where there is a published curve to compare with, unfinished runs count too. A picture ends with
    the shortest run, so those that have only begun stay out of it."""
    if entry.published is None:
        return curves_of(entry, results, fraction)
    found = [each.curve.until(stop_at(entry, fraction)) for each in results.values()]
    begun = [curve for curve in found if curve.steps.size]
    furthest = max((float(curve.steps[-1]) for curve in begun), default=0.0)
    return [curve for curve in begun if curve.steps[-1] >= furthest / 2]


def by_environment(
    entries: Sequence[Entry], results: Mapping[str, Results], fraction: float = 1.0
) -> list[tuple[str, list[tuple[Entry, list[Curve]]]]]:
    found: dict[str, list[tuple[Entry, list[Curve]]]] = {}
    for entry in entries:
        curves = drawn_curves(entry, results.get(entry.name, {}), fraction)
        found.setdefault(entry.environment, []).append((entry, curves))
    return list(found.items())


def write_report(
    manifest: Manifest,
    entries: Sequence[Entry],
    table: Sequence[Line],
    results: Mapping[str, Results],
    seeds: int,
    folder: Path,
    fraction: float = 1.0,
) -> list[Path]:
    """`<manifest>.md`, `.csv`, `.json` and `.png`, a picture for each env, and the results themselves, which the next
    report can start from; gives back what was written. The page of a part of the budgets has a folder of its own."""
    kept_in, command = folder / KEPT, f"rl-training zoo table {_how_to_name(manifest)} --write DIR"
    if fraction < 1:
        folder, command = folder / f"first-{fraction:g}", f"{command} --budget-fraction {fraction:g}"
    refuse_to_lose_seeds(manifest, table, folder / f"{manifest.name}.json")
    environments = by_environment(entries, results, fraction)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = [plot_environment(name, rows, folder) for name, rows in environments]
        made = [path for path in pictures if path is not None]
        overview = plot_overview(manifest.title, environments, folder / f"{manifest.name}.png")
        made_by = f"Made by `{command}`.\n{WHOLE if fraction >= 1 else PART}\n{RULE}"
        page = [f"# {manifest.title}", manifest.about, made_by, provenance(results)]
        page += [markdown(table, seeds, fraction), notes_text(entries)]
        page += ["References:\n\n" + protocols_text(manifest, table), comparison_section(manifest, table)]
        page += [f"![{path.stem}]({path.name})" for path in made]
        files = {
            folder / f"{manifest.name}.md": "\n\n".join(part.strip() for part in page if part) + "\n",
            folder / f"{manifest.name}.csv": csv_text(table),
            folder / f"{manifest.name}.json": json.dumps([clean_line(line) for line in table], indent=1) + "\n",
        }
        for path, text in files.items():
            atomic_write_text(path, text)
        kept = [keep(entry, results.get(entry.name, {}), kept_in) for entry in entries]
    except OSError as error:
        raise ConfigError(f"--write {folder}: cannot be written ({error.strerror})") from None
    return [*files, *([overview] if overview is not None else []), *made, *(path for path in kept if path is not None)]


def _how_to_name(manifest: Manifest) -> str:
    """A packaged one by its name; where a file of somebody's own lies says nothing on another machine."""
    return manifest.name if manifest.name in list_manifests() else "MANIFEST"


def refuse_to_lose_seeds(manifest: Manifest, table: Sequence[Line], page: Path) -> None:
    """A page may be all that is left of runs on another machine: one that knows less does not take its place."""
    if not page.is_file():
        return
    known = {line["name"]: line["seeds"] for line in table}
    presets = {entry.name: entry.preset for entry in manifest.entries}
    try:
        there = [(line["name"], int(line["seeds"]), line.get("settings", {})) for line in read_json(page)]
    except (CheckpointError, AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"{page}: not the figures of a benchmark; move it away") from None
    for name, seeds, settings in there:
        if seeds > known.get(name, 0) and name in presets and same_settings(settings, presets[name]):
            raise ConfigError(
                f"--write {page.parent}: {page.name} there has {seeds} seeds of {name}, this table "
                f"{known.get(name, 0)}; write to another folder, or move that page away to do without them"
            )


def notes_text(entries: Sequence[Entry]) -> str:
    """What the manifest says about single rows, such as why one misses its bar."""
    notes = [f"- **{entry.name}**: {entry.row.note.strip()}" for entry in entries if entry.row.note]
    return "Notes:\n\n" + "\n".join(notes) if notes else ""


def provenance(results: Mapping[str, Results]) -> str:
    """Versions that the runs themselves recorded, and the machines they were made on."""
    found = Counter(
        f"{result.versions}, on {result.machine or 'a machine that was not recorded'}"
        for row in results.values()
        for result in row.values()
        if result.versions
    )
    return "\n".join(f"{count} runs with {facts}." for facts, count in found.most_common())
