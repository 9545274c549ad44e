"""`rl-training play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.command_line.common import output
from rl_training.command_line.common.options import (
    RUNS,
    Checkpoint,
    Episodes,
    EvalSeed,
    Json,
    OutputDir,
    Stochastic,
    Target,
    Trust,
    find_checkpoint,
    report_skipped,
)
from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED
from rl_training.errors import ConfigError
from rl_training.text import one_line


def play(
    target: Target,
    episodes: Episodes = 1,
    seed: EvalSeed = FIRST_EVAL_SEED,
    gif: Annotated[Path | None, typer.Option("--gif", help="Record a GIF to this file.", show_default=False)] = None,
    mp4: Annotated[Path | None, typer.Option("--mp4", help="Record an MP4 to this file.", show_default=False)] = None,
    fps: Annotated[
        float | None,
        typer.Option("--fps", help="Environment steps per second (default: the env's own rate).", show_default=False),
    ] = None,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    trust: Trust = None,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Watch an agent in a window, or record a GIF or MP4.

    Records a GIF in the run directory if there is no display, or if only --fps is given.
    """
    if gif is not None and mp4 is not None:
        raise ConfigError("--gif, --mp4: pass only one of them")
    for option, file in (("gif", gif), ("mp4", mp4)):
        if file is not None and file.suffix.lower() != f".{option}":
            raise ConfigError(f"--{option}: {one_line(file, 100)} must end in .{option}")
    path, skipped = find_checkpoint(target, output_dir, checkpoint)
    report_skipped(skipped)

    from rl_training.playback.player import watch
    from rl_training.runtime import workflows
    from rl_training.runtime.episode_video import has_display, record_episode

    file = gif or mp4
    with output.stdout_reserved(as_json):
        agent = workflows.agent_of(path, trust=trust or ())
        if file is None and has_display() and fps is None:
            recording = watch(agent, episodes=episodes, seed=seed, deterministic=not stochastic)
        else:
            file = file or _default_gif(path)
            recording = record_episode(agent, file, episodes=episodes, seed=seed, fps=fps, deterministic=not stochastic)
    if as_json:
        output.print_json(output.recording_summary(recording))
    else:
        output.show_recording(recording)


def _default_gif(checkpoint: Path) -> Path:
    """In the run directory of the checkpoint; in the working directory for an agent saved elsewhere."""
    from rl_training.storage.run_directory import is_run_directory

    run = checkpoint.parent.parent
    in_run = checkpoint.parent.name == "checkpoints" and is_run_directory(run)
    return (run if in_run else Path()) / "play.gif"
