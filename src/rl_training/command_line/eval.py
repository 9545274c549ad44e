"""`rl-training eval`."""

from __future__ import annotations

from rl_training.command_line.common import output
from rl_training.command_line.common.options import (
    RUNS,
    Checkpoint,
    Episodes,
    EvalSeed,
    Json,
    MaxSteps,
    OutputDir,
    Policy,
    Stochastic,
    Target,
    Trust,
    find_checkpoint,
    report_skipped,
)
from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED


def evaluate(
    target: Target,
    episodes: Episodes = 10,
    seed: EvalSeed = FIRST_EVAL_SEED,
    checkpoint: Checkpoint = None,
    stochastic: Stochastic = False,
    max_steps: MaxSteps = None,
    policy: Policy = None,
    trust: Trust = None,
    output_dir: OutputDir = RUNS,
    as_json: Json = False,
) -> None:
    """Evaluate an agent over full episodes and report its mean return."""
    path, skipped = find_checkpoint(target, output_dir, checkpoint)
    report_skipped(skipped)

    from rl_training.runtime import workflows

    with output.stdout_reserved(as_json):
        result = workflows.evaluate_checkpoint(
            path,
            episodes=episodes,
            seed=seed,
            deterministic=not stochastic,
            max_steps=max_steps,
            policy=policy,
            trust=trust or (),
        )
    if as_json:
        output.print_json(result.summary() | {"checkpoint": str(path), "skipped": skipped})
    else:
        output.show_evaluation(result, str(path))
