"""`rl-training play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line import output
from rl_training.command_line.options import (
    RUNS,
    Checkpoint,
    Episodes,
    EvalSeed,
    Json,
    OutputDir,
    Stochastic,
    Target,
    find_checkpoint,
)
from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED
from rl_training.errors import ConfigError


def play(
    target: Target,
    episodes: Episodes = 1,
    seed: EvalSeed = FIRST_EVAL_SEED,
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
    path = find_checkpoint(target, output_dir, checkpoint)

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


def _default_gif(checkpoint: Path) -> Path:
    """In the run that the checkpoint belongs to; an agent that was saved elsewhere has none."""
    from rl_training.storage.run_directory import is_run_directory

    run = checkpoint.parent.parent
    belongs = checkpoint.parent.name == "checkpoints" and is_run_directory(run)
    return (run if belongs else Path()) / "play.gif"
