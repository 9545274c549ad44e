"""The command line: words become one call each. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rl_training._version import __version__
from rl_training.command_line import output
from rl_training.command_line.check import check as check_command
from rl_training.command_line.list import lists
from rl_training.command_line.options import (
    FIRST_SEED,
    RUNS,
    Checkpoint,
    Config,
    Episodes,
    EvalSeed,
    Json,
    OutputDir,
    Quiet,
    Stochastic,
    Target,
    TotalTimesteps,
    Which,
)
from rl_training.command_line.zoo import zoo
from rl_training.errors import ConfigError, RLTrainingError

if TYPE_CHECKING:
    from rl_training.config.train_config import TrainConfig
    from rl_training.runtime.workflows import TrainResult

EXIT_INTERRUPTED = 130
EXIT_RESUMABLE = 75


class Commands(TyperGroup):
    """Expected failures are one line on stderr and an exit code; everything else keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RLTrainingError as error:
            typer.echo("error: " + " ".join(str(error).splitlines()), err=True)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(lists, name="list")
app.add_typer(zoo, name="zoo")
check = app.command("check")(check_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print_text(f"rl_training {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Reinforcement learning: train, watch, evaluate and resume agents.

    Start with: rl-training train ppo/cartpole
    """


@app.command()
def train(
    config: Config = None,
    config_option: Annotated[
        str | None, typer.Option("--config", metavar="CONFIG", help="The same as CONFIG.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated.", show_default=False),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the run.", show_default=False)] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="One run for each seed.", show_default=False)
    ] = None,
    output_dir: Annotated[
        str | None, typer.Option("--output-dir", help="Where run directories are made.", show_default=False)
    ] = None,
    total_timesteps: TotalTimesteps = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an agent in a run directory of its own."""
    given = [source for source in (config, config_option) if source is not None]
    if len(given) != 1:
        problem = "name it once, not twice" if given else "name a preset such as ppo/cartpole, or a YAML file"
        raise ConfigError(f"CONFIG: {problem} (`rl-training list configs` shows the presets)")
    changes = {"seed": seed, "output_dir": output_dir, "total_timesteps": total_timesteps}
    configs = _configs(given[0], overrides or [], changes, seeds)

    from rl_training.runtime import stop_signals, workflows

    stop_signals.exit_when_stuck()
    results = []
    for each in configs:
        with output.stdout_reserved(as_json):
            result = workflows.train(each, show=False if quiet else None)
        _report(result, as_json)
        results.append(result)
    if len(results) > 1 and not as_json:
        output.show_seeds(results)


def _configs(source: str, overrides: Sequence[str], changes: dict[str, Any], seeds: str | None) -> list[TrainConfig]:
    """All configs are checked before the first one is run, and before torch is imported."""
    from rl_training.config.loading import load_config

    # The values of options are literal: only those of --set are YAML.
    options = {key: value for key, value in changes.items() if value is not None}
    if seeds is None:
        return [load_config(source, overrides, options)]
    if changes["seed"] is not None:
        raise ConfigError("seeds: give --seed or --seeds, not both")
    try:
        numbers = [int(word) for word in seeds.split(",")]
    except ValueError:
        numbers = []
    if not numbers or len(set(numbers)) != len(numbers):
        raise ConfigError(f"seeds: {seeds!r} is not valid, expected different integers such as 0,1,2")
    return [load_config(source, overrides, {**options, "seed": number}) for number in numbers]


def _report(result: TrainResult, as_json: bool) -> None:
    if as_json:
        output.print_json(result.summary())
    else:
        output.show_result(result)
    if result.interrupted:
        resume_command = output.command("resume", result.run_dir)
        typer.echo(f"stopped after {result.env_steps:,} steps and saved; go on with: {resume_command}", err=True)
        raise typer.Exit(EXIT_RESUMABLE)


@app.command()
def resume(
    target: Target,
    total_timesteps: TotalTimesteps = None,
    output_dir: OutputDir = RUNS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run from its newest good checkpoint; with more steps, extend a finished one."""
    _resolve(target, output_dir)  # a wrong name is told at once, before torch is imported

    from rl_training.runtime import stop_signals, workflows

    stop_signals.exit_when_stuck()
    with output.stdout_reserved(as_json):
        result = workflows.resume(
            target, total_timesteps=total_timesteps, output_dir=output_dir, show=False if quiet else None
        )
    if result.steps_per_second == 0:
        typer.echo("the run was finished already: --total-timesteps N extends it", err=True)
    _report(result, as_json)


@app.command("eval")
def evaluate(
    target: Target,
    episodes: Episodes = 10,
    seed: EvalSeed = FIRST_SEED,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Play full episodes and report the mean return."""
    path = _resolve(target, output_dir, checkpoint)

    from rl_training.runtime import workflows

    with output.stdout_reserved(as_json):
        result = workflows.evaluate_checkpoint(path, episodes=episodes, seed=seed, deterministic=not stochastic)
    if as_json:
        output.print_json(result.summary())
    else:
        output.show_evaluation(result, str(path))


@app.command()
def predict(
    target: Target,
    obs: Annotated[
        str | None, typer.Option("--obs", metavar="JSON", help="An observation, or a list of them; else stdin.")
    ] = None,
    episode: Annotated[
        bool, typer.Option("--episode", help="The list is one episode, in its order: a policy with memory remembers.")
    ] = False,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Print the action for an observation, in the env's own units."""
    from rl_training.command_line.observations import parse_json, to_observation

    name = "--obs" if obs is not None else "stdin"
    if obs is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise ConfigError("--obs: give an observation as JSON, here or on stdin")
        obs = sys.stdin.read()
    value = parse_json(obs, name)
    path = _resolve(target, output_dir, checkpoint)

    from rl_training.runtime import workflows

    with output.stdout_reserved():
        agent = workflows.agent_of(path)
        observation = to_observation(value, agent.spaces, name)
        if episode:
            if not agent.spaces.is_batched(observation):
                raise ConfigError(f"{name}: --episode takes a list of observations, this is one")
            action = agent.predict_episode(observation, deterministic=not stochastic)
        else:
            action, _ = agent.predict(observation, deterministic=not stochastic)
    output.print_json({"action": action.tolist()} if as_json else action.tolist())


@app.command()
def play(
    target: Target,
    episodes: Episodes = 1,
    seed: EvalSeed = FIRST_SEED,
    gif: Annotated[Path | None, typer.Option("--gif", help="Write a GIF to this file.", show_default=False)] = None,
    mp4: Annotated[Path | None, typer.Option("--mp4", help="Write an MP4 to this file.", show_default=False)] = None,
    fps: Annotated[
        float | None, typer.Option("--fps", help="Env steps per second; the env's own unless said.", show_default=False)
    ] = None,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Watch the agent: in a window, or as a GIF or MP4. Without a display a GIF is written."""
    if gif is not None and mp4 is not None:
        raise ConfigError("--gif, --mp4: choose one of the two")
    for option, file in (("gif", gif), ("mp4", mp4)):
        if file is not None and file.suffix.lower() != f".{option}":
            raise ConfigError(f"--{option}: {file} has to end in .{option}")
    path = _resolve(target, output_dir, checkpoint)

    from rl_training.playback.player import has_display, record_episode, watch
    from rl_training.runtime import workflows

    file = gif or mp4
    with output.stdout_reserved(as_json):
        agent = workflows.agent_of(path)
        if file is None and has_display() and fps is None:
            played = watch(agent, episodes=episodes, seed=seed, deterministic=not stochastic)
        else:
            file = file or _default_gif(path)
            played = record_episode(agent, file, episodes=episodes, seed=seed, fps=fps, deterministic=not stochastic)
    if as_json:
        output.print_json(output.recording_summary(played))
    else:
        output.show_recording(played)


@app.command()
def inspect(target: Target, checkpoint: Checkpoint = None, output_dir: OutputDir = RUNS, as_json: Json = False) -> None:
    """Show what a checkpoint holds, and whether its files are intact."""
    from rl_training.command_line.inspect import inspect_checkpoint, show_report
    from rl_training.errors import CheckpointError

    report = inspect_checkpoint(_resolve(target, output_dir, checkpoint))
    if as_json:
        output.print_json(report)
    else:
        show_report(report)
    if not report["verified"]:
        raise CheckpointError(report["problems"][0])


@app.command()
def reproduce(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A crash file: runs/<name>/crash/*.json.")],
    as_json: Json = False,
) -> None:
    """Play an env's crash file again, in this one process: same env, same seed, same actions."""
    if not file.is_file():
        raise ConfigError(f"FILE: {file} does not exist; crash files are in the crash folder of a run")

    import faulthandler
    import traceback

    from rl_training.envs.failures import EnvFailed
    from rl_training.playback import crash_replay

    with contextlib.suppress(OSError, ValueError):  # stderr may be no file
        faulthandler.enable()  # shows where Python was when an env's native code ends the process
    typer.echo(f"recorded: {crash_replay.read_crash_file(file).reason}", err=True)
    try:
        with output.stdout_reserved(as_json):
            steps = crash_replay.reproduce(file)
    except EnvFailed as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        raise
    if as_json:
        output.print_json({"failed": False, "steps": steps})
    else:
        output.print_text(f"did not fail again in {steps} steps: it depends on more than seed and actions")


def _resolve(target: str, output_dir: Path, checkpoint: Which | None = None) -> Path:
    from rl_training.storage.checkpoints import resolve_checkpoint

    which = checkpoint.word if checkpoint is not None else None
    return resolve_checkpoint(target, output_dir, which=which, segments="skip")


def _default_gif(checkpoint: Path) -> Path:
    """In the run that the checkpoint belongs to; an agent that was saved elsewhere has none."""
    from rl_training.storage.run_directory import is_run_directory

    run = checkpoint.parent.parent
    belongs = checkpoint.parent.name == "checkpoints" and is_run_directory(run)
    return (run if belongs else Path()) / "play.gif"


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that knows only ASCII gets question marks for the rest, not a traceback.
            stream.reconfigure(errors="replace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="rl-training")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
