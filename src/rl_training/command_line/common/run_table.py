"""The table of `rl-training list runs`, for terminals of any width."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training import terminal
from rl_training.command_line.common.output import print_text, show, status_text, table

if TYPE_CHECKING:
    from rich.console import RenderableType

NUMERIC = ("seed", "steps", "last", "best")
# From everything to the least that is useful. The name of a run usually contains algorithm, env and seed.
COLUMNS = (
    ("run", "status", "algorithm", "env", "seed", "steps", "last", "best", "created"),
    ("run", "status", "seed", "steps", "last", "best", "created"),
    ("run", "status", "steps", "last", "best", "created"),
    ("run", "status", "steps", "last", "best"),
    ("run", "status", "short steps", "last", "best"),
)


def run_rows(output_dir: Path) -> list[dict[str, Any]]:
    """One row per run, newest first, as `list runs --json` prints it."""
    from rl_training.analysis.evaluations import read_scores
    from rl_training.storage.run_directory import list_runs, open_run_directory

    rows = []
    for run in list_runs(output_dir):
        info = open_run_directory(run.path).read_info()
        scores = read_scores(run.path)
        rows.append(
            {
                "name": run.name,
                "path": str(run.path),
                "status": run.status,
                "created": run.created,
                "algo": run.algorithm,
                "env_id": run.env,
                "seed": run.seed,
                "env_steps": _steps(run.path, info.get("env_steps")),
                "total_timesteps": run.total_timesteps,
                "wall_seconds": info.get("wall_seconds"),
                "last_score": scores.last,
                "best_score": scores.best,
                "score_steps": scores.steps,
            }
        )
    return rows


def _steps(path: Path, stored: int | None) -> int | None:
    """How far a run got. `run.json` has the step of its last save, the metric stream may be further."""
    from rl_training.telemetry.metric_lines import METRICS_FILE
    from rl_training.telemetry.metric_tail import newest_step

    return None if stored is None else max(stored, newest_step(path / METRICS_FILE) or 0)


def show_runs(rows: Sequence[dict[str, Any]]) -> None:
    width = terminal.width()
    cells = [_cells(row) for row in rows]
    for columns in COLUMNS:
        view = _table(cells, columns)
        if terminal.width_of(view) <= width:
            show(view)
            return
    # A name is copied into the next command, so it is never cut: it gets a line for itself.
    for row in cells:
        last, best = row["last"], row["best"]
        print_text(row["run"], f"  {row['status']}, {row['short steps']} steps, last {last}, best {best}")


def _table(cells: Sequence[dict[str, Any]], columns: Sequence[str]) -> RenderableType:
    headers = [column.removeprefix("short ") for column in columns]
    return table(headers, [[row[column] for column in columns] for row in cells], NUMERIC)


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    from rl_training.telemetry.console_view import format_return
    from rl_training.text import clean_text

    done, total = row["env_steps"], row["total_timesteps"]
    return {
        "run": clean_text(row["name"], None),
        "status": status_text(row["status"]),
        "algorithm": row["algo"] or "?",
        "env": row["env_id"] or "?",
        "seed": "?" if row["seed"] is None else row["seed"],
        "steps": f"{_count(done)} / {_count(total)}",
        "short steps": f"{_short(done)}/{_short(total)}",
        "last": format_return(row["last_score"]),
        "best": format_return(row["best_score"]),
        "created": _local_time(row["created"]),
    }


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _short(value: Any) -> str:
    """A count in at most five characters, up to a trillion."""
    if not isinstance(value, int):
        return "?"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size * 0.9995:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return str(value)


def _local_time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text
