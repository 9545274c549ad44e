"""What every reference script does: train a packaged preset, evaluate the agent, print score and run directory."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import rl_training
from rl_training.config.algorithm_table import get_algorithm


def main(
    preset: str, description: str, *, episodes: int = 20, tiny: Callable[[int], dict[str, Any]] | None = None
) -> None:
    """Run `preset` with the options of the command line.

    `tiny(total_timesteps)` gives the settings of a short run, for presets that take hours: without `--full` they apply.
    """
    # An option that is not given is not set either, so the preset's value holds.
    parser = argparse.ArgumentParser(description=description, argument_default=argparse.SUPPRESS)
    parser.add_argument("--total-timesteps", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--output-dir")
    if tiny is not None:
        parser.add_argument("--full", action="store_true", help="train the whole preset, which takes hours")
    options = vars(parser.parse_args())
    if tiny is not None and not options.pop("full", False):
        options = tiny(options.pop("total_timesteps", 2_048)) | options

    algorithm = getattr(rl_training, get_algorithm(preset.split("/")[0]).class_name)
    agent = algorithm(preset=preset, **options).learn()
    evaluation = agent.evaluate(episodes=episodes)
    print(f"{agent}: {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} over {episodes} episodes")
    print(f"run directory: {agent.run_dir}")
