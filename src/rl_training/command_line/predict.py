"""`rl-training predict`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rl_training.command_line.common import output
from rl_training.command_line.common.options import (
    RUNS,
    Checkpoint,
    Json,
    OutputDir,
    Stochastic,
    Target,
    Trust,
    find_checkpoint,
    report_skipped,
)
from rl_training.errors import ConfigError


def predict(
    target: Target,
    obs: Annotated[
        str | None,
        typer.Option("--obs", metavar="JSON", help="Observation or list of observations (default: read stdin)."),
    ] = None,
    episode: Annotated[
        bool, typer.Option("--episode", help="Treat the list as one episode, so a recurrent policy keeps its memory.")
    ] = False,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    trust: Trust = None,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Print the action of an agent for an observation.

    Actions are in the units of the environment.
    """
    from rl_training.command_line.common.observations import parse_json, read_stdin, to_observation

    name = "--obs" if obs is not None else "stdin"
    if obs is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise ConfigError("--obs: missing, pass an observation as JSON here or on stdin")
        obs = read_stdin()
    value = parse_json(obs, name)
    path, skipped = find_checkpoint(target, output_dir, checkpoint)
    report_skipped(skipped)

    from rl_training.runtime import workflows

    with output.stdout_reserved():
        agent = workflows.agent_of(path, trust=trust or ())
        observation = to_observation(value, agent.spaces, name)
        if episode:
            if not agent.spaces.is_batched(observation):
                raise ConfigError(f"{name}: --episode needs a list of observations, but this is a single one")
            action = agent.predict_episode(observation, deterministic=not stochastic)
        else:
            action, _ = agent.predict(observation, deterministic=not stochastic)
    output.print_json({"action": action.tolist()} if as_json else action.tolist())
