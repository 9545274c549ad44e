"""`rl-training list`: algorithms, presets, runs, settings and benchmarks."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training.command_line.common.options import RUNS, Json, OutputDir
from rl_training.command_line.common.output import print_json, print_text, show, table
from rl_training.command_line.common.run_table import run_rows, show_runs
from rl_training.program import call

lists = typer.Typer(no_args_is_help=True, help="List algorithms, presets, runs, settings or benchmarks.")


@lists.command()
def algorithms(as_json: Json = False) -> None:
    """List the algorithms with their action spaces and papers."""
    from rl_training.config.algorithm_table import usable_algorithms
    from rl_training.telemetry.metric_lines import warn

    usable, problems = usable_algorithms()
    for problem in problems:
        warn(str(problem))
    rows = [{"name": row.name, "title": row.title, "actions": row.action_names, "paper": row.paper} for row in usable]
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
    """List runs with their scores, newest first.

    `last` is the mean return of the last evaluation, `best` the highest during training.
    """
    rows = run_rows(output_dir)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_text(f"no runs in {output_dir}; start one: {call('train', 'ppo/cartpole')}")
        return
    show_runs(rows)


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
