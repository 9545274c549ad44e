"""A dashboard as one HTML file: the same page with its data, styles and scripts inside. It asks no one for anything."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training._version import __version__
from rl_training.analysis.run_plot import DEFAULT_METRIC
from rl_training.dashboard.group_curves import compare_groups, read_groups
from rl_training.dashboard.metric_names import HIDDEN, SECTIONS, describe
from rl_training.dashboard.page import page_html, require_packages
from rl_training.dashboard.run_facts import checkpoints, read_video, run_facts
from rl_training.dashboard.run_shelf import RunShelf
from rl_training.dashboard.run_stream import MAIN_METRICS
from rl_training.errors import CheckpointError, ConfigError
from rl_training.program import call
from rl_training.storage.durable_files import atomic_write_text
from rl_training.text import clean_text, one_line

MOST_PICTURES = 24 * 2**20  # bytes of GIFs in a file
MANY_POINTS, FEW_POINTS, ALL_POINTS = 800, 60, 8000  # of a curve: at most, at least, and of all runs together
FOREVER = 1e9


@dataclass(frozen=True)
class Export:
    """A file that was written, and what it had to leave out."""

    path: Path
    runs: int
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        return {"file": str(self.path), "runs": self.runs, "notes": list(self.notes)}


def export_dashboard(targets: Sequence[str], output: str | Path, *, output_dir: str | Path = "runs") -> Export:
    """Write the dashboard of runs to one HTML file, which opens from a disk and loads nothing.

    `targets` are runs as in `select_runs`; without any, all runs of `output_dir`.
    """
    output = Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--export {output}: the dashboard is an .html file; choose such a name")
    require_packages()
    shelf = RunShelf(targets, output_dir)
    if not shelf.names:
        raise CheckpointError(f"{output_dir}: has no runs to export; `{call('list', 'runs')}` shows the runs")
    notes: list[str] = []
    text = page_html(mode="file", title=f"{len(shelf.names)} runs", data=_data(shelf, notes))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(output, text)
    except OSError as error:
        raise ConfigError(f"--export {output}: cannot be written ({one_line(error.strerror or error)})") from None
    return Export(output, len(shelf.names), tuple(notes))


def _data(shelf: RunShelf, notes: list[str]) -> dict[str, Any]:
    listing = shelf.rows(budget=FOREVER)
    points = max(FEW_POINTS, min(MANY_POINTS, ALL_POINTS // len(listing["names"])))
    pictures = _Pictures()
    runs = {name: _run(shelf, name, points, pictures) for name in listing["names"]}
    if pictures.left_out:
        notes.append(
            f"{pictures.left_out} videos are left out: they have more than {MOST_PICTURES // 2**20} MB together"
        )
    return {
        "listing": {**listing, "folder": clean_text(str(shelf.output_dir), 300)},
        "runs": runs,
        "compare": _comparisons(shelf, listing["names"]),
        "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "version": __version__,
    }


class _Pictures:
    """GIFs as data, until they have become too many."""

    def __init__(self) -> None:
        self.size = self.left_out = 0

    def add(self, run_dir: Path, name: str) -> str | None:
        found = read_video(run_dir, name)
        if found is None or self.size + len(found[0]) > MOST_PICTURES:
            self.left_out += 1
            return None
        self.size += len(found[0])
        return f"data:{found[1]};base64,{base64.b64encode(found[0]).decode()}"


def _run(shelf: RunShelf, name: str, points: int, pictures: _Pictures) -> dict[str, Any]:
    run = shelf.run(name)
    if run is None:
        return {}
    facts = run_facts(run)
    for video in facts["videos"]:
        video["data"] = pictures.add(run.path, video["name"])
    facts["videos"] = [video for video in facts["videos"] if video["data"] is not None]
    stream = shelf.stream(run)
    stream.follow(FOREVER)
    answer = stream.since("", points=(points, max(FEW_POINTS, points // 4)))
    series = {metric: {**describe(metric), **each} for metric, each in answer["series"].items() if metric not in HIDDEN}
    metrics = {**answer, "series": series, "complete": True, "findings": stream.findings(), "row": shelf.row(name)}
    return {
        "run": {"row": shelf.row(name), "facts": facts, "sections": SECTIONS},
        "metrics": metrics,
        "checkpoints": {"checkpoints": checkpoints(run.path)},
    }


def _comparisons(shelf: RunShelf, names: Sequence[str]) -> dict[str, Any]:
    """The comparison of all runs, for return and evaluation."""
    found = {}
    for metric in (DEFAULT_METRIC, *MAIN_METRICS):
        if metric not in found:
            answer, streams = read_groups(shelf, names, metric, budget=FOREVER)
            found[metric] = compare_groups(answer, streams)
            found[metric]["metrics"] = [each for each in found[metric]["metrics"] if each["name"] in MAIN_METRICS]
    return found
