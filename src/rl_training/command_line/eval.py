"""`rl-training eval`."""

from __future__ import annotations

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


def evaluate(
    target: Target,
    episodes: Episodes = 10,
    seed: EvalSeed = FIRST_EVAL_SEED,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Evaluate an agent over full episodes and report its mean return."""
    path = find_checkpoint(target, output_dir, checkpoint)

    from rl_training.runtime import workflows

    with output.stdout_reserved(as_json):
        result = workflows.evaluate_checkpoint(path, episodes=episodes, seed=seed, deterministic=not stochastic)
    if as_json:
        output.print_json(result.summary())
    else:
        output.show_evaluation(result, str(path))
