"""`rl-training train`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.command_line.common import output
from rl_training.command_line.common.options import Config, Json, Quiet
from rl_training.command_line.common.run_source import source_of
from rl_training.config.own_classes import trust_option
from rl_training.errors import EXIT_RESUMABLE, ConfigError
from rl_training.terminal import print_error
from rl_training.text import clean_text

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig


def train(
    config: Config = None,
    config_option: Annotated[
        str | None, typer.Option("--config", metavar="CONFIG", help="Same as the CONFIG argument.", show_default=False)
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="ENV",
            help="Train CONFIG, then the name of an algorithm, on this environment: a Gymnasium id or module:EnvId.",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting, such as gamma=0.9. Repeatable.", show_default=False
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed.", show_default=False)] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Train one run per seed.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=256, help="Number of seeds to train at the same time.")] = 1,
    output_dir: Annotated[
        str | None, typer.Option("--output-dir", help="Directory for new run directories.", show_default=False)
    ] = None,
    total_timesteps: Annotated[
        int | None,
        typer.Option("--total-timesteps", help="Total environment steps of the run.", show_default=False),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(
            "--actors",
            min=1,
            max=1024,
            help="Step the environments in this many processes. Same as --set runtime.actors=N.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an agent in a new run directory."""
    source = source_of("train", config, config_option, env)
    changes = {"seed": seed, "output_dir": output_dir, "total_timesteps": total_timesteps, "runtime.actors": actors}
    configs = _load_configs(source, overrides or [], changes, seeds)
    if jobs > 1 and seeds is None:
        raise ConfigError("--jobs: trains seeds side by side, pass --seeds such as 0,1,2")
    if jobs > 1 and len(configs) > 1:
        _train_side_by_side(configs, jobs, quiet, as_json)
        return

    from rl_training.runtime import stop_signals, workflows

    stop_signals.exit_when_stuck()
    results = []
    for each in configs:
        with output.stdout_reserved(as_json):
            result = workflows.train(each, show=False if quiet else None)
        output.report_result(result, as_json)
        results.append(result)
    if len(results) > 1 and not as_json:
        output.show_seeds(results)
    output.exit_if_evaluation_failed(results)


def _train_side_by_side(configs: Sequence[TrainConfig], jobs: int, quiet: bool, as_json: bool) -> None:
    """Train in worker processes and print one summary at the end."""
    from rl_training.experiment.seed_runs import train_side_by_side

    with output.stdout_reserved(as_json):
        runs = train_side_by_side(configs, jobs, show=False if quiet else None)
    if as_json:
        for result in runs.results:
            output.print_json(result.summary)
    elif runs.results:
        output.show_seeds(runs.results)
    for result in runs.results:
        for line in result.warnings:
            print_error(f"warning: seed {result.seed}: {line}")
        for finding in result.summary.get("findings", ()):
            print_error(f"finding: seed {result.seed}, step {finding['env_steps']:,}: {finding['text']}")
    if runs.stopped:
        for result in runs.results:
            if result.interrupted:
                again = output.command("resume", result.run_dir, *trust_option(configs[0].model.encoder))
                print_error(f"seed {result.seed}: stopped and saved; continue with: {again}")
        if runs.not_started:
            print_error(f"not started: seeds {', '.join(map(str, runs.not_started))}")
    for seed, (why, _) in runs.failures.items():
        print_error(f"error: seed {seed}: {why}")
    codes = [code for _, code in runs.failures.values()] + [each.exit_code for each in runs.results if each.exit_code]
    if codes:
        raise typer.Exit(codes[0])
    if runs.stopped:
        raise typer.Exit(EXIT_RESUMABLE)


def _load_configs(
    source: str | dict[str, str], overrides: Sequence[str], changes: dict[str, Any], seeds: str | None
) -> list[TrainConfig]:
    """One config per seed. All of them are validated before the first run starts and before torch is imported."""
    from rl_training.config.loading import load_config

    # As a mapping, not as key=value text: the value of an option is literal, not YAML.
    options = {key: value for key, value in changes.items() if value is not None}
    if seeds is None:
        return [load_config(source, overrides, options)]
    if changes["seed"] is not None:
        raise ConfigError("seeds: pass either --seed or --seeds, not both")
    try:
        numbers = [int(word) for word in seeds.split(",")]
    except ValueError:
        numbers = []
    if not numbers or len(set(numbers)) != len(numbers):
        raise ConfigError(f"seeds: {clean_text(seeds, 60)!r} is not valid, expected distinct integers such as 0,1,2")
    return [load_config(source, overrides, {**options, "seed": number}) for number in numbers]
