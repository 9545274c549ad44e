"""`rl-training list`: algorithms, presets, runs, settings and benchmarks."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training.command_line.options import RUNS, Json, OutputDir
from rl_training.command_line.output import print_json, print_text, show, status_text, table

lists = typer.Typer(no_args_is_help=True, help="List algorithms, presets, runs, settings or benchmarks.")


@lists.command()
def algorithms(as_json: Json = False) -> None:
    """List the algorithms with their action spaces and papers."""
    from rl_training.config.algorithm_table import algorithm_names, get_algorithm

    rows = [
        {"name": row.name, "title": row.title, "actions": row.action_names, "paper": row.paper}
        for row in map(get_algorithm, algorithm_names())
    ]
    if as_json:
        print_json(rows)
        return
    cells = [(row["name"], row["title"], ", ".join(row["actions"]), row["paper"]) for row in rows]
    show(table(["name", "algorithm", "actions", "paper"], cells))


@lists.command()
def configs(as_json: Json = False) -> None:
    """List the packaged presets for `rl-training train`."""
    from rl_training.config.loading import list_presets, load_config

    presets = [(name, load_config(name)) for name in list_presets()]
    rows = [
        {"name": name, "algo": config.algo, "env_id": config.env_id, "total_timesteps": config.total_timesteps}
        for name, config in presets
    ]
    if as_json:
        print_json(rows)
        return
    cells = [(name, config.algo, config.env_id, f"{config.total_timesteps:,}") for name, config in presets]
    show(table(["name", "algorithm", "env", "steps"], cells, ["steps"]))


@lists.command()
def runs(output_dir: OutputDir = RUNS, as_json: Json = False) -> None:
    """List runs, newest first."""
    rows = _run_rows(output_dir)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_text(f"no runs in {output_dir}; start one: rl-training train ppo/cartpole")
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
    show(table(["run", "status", "algorithm", "env", "seed", "steps", "created"], cells, ["seed", "steps"]))


@lists.command()
def settings(
    algo: Annotated[str, typer.Argument(metavar="ALGORITHM", help="Algorithm name such as ppo.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List all settings for a run with this algorithm."""
    from rl_training.config.algorithm_table import get_algorithm
    from rl_training.config.loading import describe_config

    get_algorithm(algo)
    rows = describe_config(algo)
    if as_json:
        print_json([row._asdict() for row in rows])
    else:
        show(table(["setting", "type", "default", "meaning"], rows))


@lists.command()
def zoo(as_json: Json = False) -> None:
    """List the benchmarks.

    `rl-training zoo list NAME` shows the rows of one.
    """
    from rl_training.command_line.zoo import list_zoo

    list_zoo(None, as_json)


def _run_rows(output_dir: Path) -> list[dict[str, Any]]:
    from rl_training.storage.run_directory import list_runs, open_run_directory

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


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _local_time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text
