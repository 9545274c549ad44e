"""What `zoo table --write` leaves: a page, the figures as CSV and JSON, and the pictures."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rl_training.errors import ConfigError
from rl_training.runtime.checkpoint import list_checkpoints, read_manifest
from rl_training.runtime.durable_files import atomic_write_text
from rl_training.runtime.metric_lines import clean_line
from rl_training.zoo.comparison import comparison_section, evaluated
from rl_training.zoo.curves import Curve, read_curve
from rl_training.zoo.manifest import Entry, Manifest
from rl_training.zoo.plots import plot_environment, plot_overview
from rl_training.zoo.runs import Job, is_done, same_settings, stored_score
from rl_training.zoo.table import Line, csv_text, markdown, protocols_text

RULE = """Every preset was trained within its budget, and the LAST checkpoint of each seed evaluated. A row passes when
at least 4 of 5 seeds reach the floor and the median reaches the bar; a control (an agent without what the task needs)
passes when every seed stays below its ceiling. IQM is the interquartile mean with its 95 % stratified bootstrap
interval. Steps and minutes to floor: median, over the seeds that got there, of the first evaluation during training at
or above the floor (10 episodes on other seeds). Area: mean height of the evaluation curve. Minutes are wall time on
one thread, with whatever else the machine had to do."""


def curves_of(entry: Entry, seeds: int, output_dir: str, fraction: float = 1.0) -> list[Curve]:
    """Of the seeds that are done; none of a run whose settings are older than the preset."""
    jobs = [Job(entry, seed, output_dir, fraction) for seed in range(seeds)]
    done = [job for job in jobs if (stored_score(job) is not None if fraction >= 1 else is_done(job))]
    return [read_curve(job.run_dir).until(job.stop) for job in done]


def drawn_curves(entry: Entry, seeds: int, output_dir: str, fraction: float = 1.0) -> list[Curve]:
    """For a picture: where there is a published curve to compare with, unfinished runs count too. A picture ends with
    the shortest run, so those that have only begun stay out of it."""
    if entry.published is None:
        return curves_of(entry, seeds, output_dir, fraction)
    found = [evaluated(Job(entry, seed, output_dir, fraction)) for seed in range(seeds)]
    begun = [curve for curve in found if curve is not None]
    furthest = max((float(curve.steps[-1]) for curve in begun), default=0.0)
    return [curve for curve in begun if curve.steps[-1] >= furthest / 2]


def by_environment(
    entries: Sequence[Entry], seeds: int, output_dir: str, fraction: float = 1.0
) -> list[tuple[str, list[tuple[Entry, list[Curve]]]]]:
    found: dict[str, list[tuple[Entry, list[Curve]]]] = {}
    for entry in entries:
        found.setdefault(entry.environment, []).append((entry, drawn_curves(entry, seeds, output_dir, fraction)))
    return list(found.items())


def write_report(
    manifest: Manifest,
    entries: Sequence[Entry],
    table: Sequence[Line],
    seeds: int,
    output_dir: str,
    folder: Path,
    fraction: float = 1.0,
) -> list[Path]:
    """`<manifest>.md`, `.csv`, `.json` and `.png`, and a picture for each env; gives back what was written."""
    environments = by_environment(entries, seeds, output_dir, fraction)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = [plot_environment(name, rows, folder) for name, rows in environments]
        made = [path for path in pictures if path is not None]
        overview = plot_overview(manifest.title, environments, folder / f"{manifest.name}.png")
        made_by = f"Made by `rl-training zoo table {manifest.name} --write DIR`.\n{RULE}"
        page = [f"# {manifest.title}", manifest.about, made_by, provenance(entries, seeds, output_dir)]
        page += [markdown(table, seeds), notes_text(entries), "References:\n\n" + protocols_text(manifest, table)]
        page += [comparison_section(manifest, table)]
        page += [f"![{path.stem}]({path.name})" for path in made]
        files = {
            folder / f"{manifest.name}.md": "\n\n".join(part.strip() for part in page if part) + "\n",
            folder / f"{manifest.name}.csv": csv_text(table),
            folder / f"{manifest.name}.json": json.dumps([clean_line(line) for line in table], indent=1) + "\n",
        }
        for path, text in files.items():
            atomic_write_text(path, text)
    except OSError as error:
        raise ConfigError(f"--write {folder}: cannot be written ({error.strerror})") from None
    return [*files, *([overview] if overview is not None else []), *made]


def notes_text(entries: Sequence[Entry]) -> str:
    """What the manifest says about single rows, such as why one misses its bar."""
    notes = [f"- **{entry.name}**: {entry.row.note.strip()}" for entry in entries if entry.row.note]
    return "Notes:\n\n" + "\n".join(notes) if notes else ""


def provenance(entries: Sequence[Entry], seeds: int, output_dir: str) -> str:
    """Versions that the runs themselves recorded in their last checkpoints, and the machine that made the table."""
    found: Counter[str] = Counter()
    for entry in entries:
        for seed in range(seeds):
            job = Job(entry, seed, output_dir)
            checkpoints = list_checkpoints(job.run_dir, "resume")
            if checkpoints and same_settings(job.run_dir / "config.yaml", entry.preset):
                manifest = read_manifest(checkpoints[0])
                facts = {"rl_training": manifest.library_version} | manifest.fingerprint
                found[", ".join(f"{name} {value}" for name, value in facts.items() if name != "threads")] += 1
    lines = [f"{count} runs with {versions}." for versions, count in found.most_common()]
    return "\n".join([*lines, f"Table made on {processor()}, {os.cpu_count()} cores."])


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
