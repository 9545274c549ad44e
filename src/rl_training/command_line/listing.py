"""Rows for `list`, the same for machines and for people."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from rl_training.command_line.output import print_text, show, status_text, table


def algorithm_rows() -> list[dict[str, Any]]:
    from rl_training.experiment.registry import algorithm_names, get_spec
    from rl_training.runtime.spec import SPACE_NAMES

    rows = []
    for name in algorithm_names():
        spec = get_spec(name)
        actions = [SPACE_NAMES[kind] for kind in spec.actions]
        rows.append({"name": name, "title": spec.title, "actions": actions, "paper": spec.paper})
    return rows


def preset_rows() -> list[dict[str, Any]]:
    from rl_training.experiment.config import list_presets, load_config

    rows = []
    for name in list_presets():
        config = load_config(name)
        shown = {key: getattr(config, key) for key in ("algo", "env_id", "total_timesteps")}
        rows.append({"name": name, **shown})
    return rows


def run_rows(output_dir: Path) -> list[dict[str, Any]]:
    from rl_training.runtime.run_directory import list_runs, open_run_directory

    rows = []
    for run in list_runs(output_dir):
        info = open_run_directory(run.path).read_info()
        rows.append(
            {
                "name": run.name,
                "path": str(run.path),
                "status": run.status,
                "created": run.created,
                "algo": run.algorithm,
                "env_id": run.env,
                "seed": run.seed,
                "env_steps": info.get("env_steps"),
                "total_timesteps": run.total_timesteps,
                "wall_seconds": info.get("wall_seconds"),
            }
        )
    return rows


def show_runs(rows: list[dict[str, Any]], output_dir: Path) -> None:
    if not rows:
        print_text(f"no runs in {output_dir}; start one with: rl-training train ppo/cartpole")
        return
    cells = [
        (
            row["name"],
            status_text(row["status"]),
            row["algo"] or "?",
            row["env_id"] or "?",
            "?" if row["seed"] is None else row["seed"],
            f"{_count(row['env_steps'])} / {_count(row['total_timesteps'])}",
            _local_time(row["created"]),
        )
        for row in rows
    ]
    headers = ["run", "status", "algorithm", "env", "seed", "steps", "created"]
    show(table(headers, cells, ["seed", "steps"]))


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _local_time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text
