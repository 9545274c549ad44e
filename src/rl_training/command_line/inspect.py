"""`rl-training inspect`."""

from __future__ import annotations

from rl_training.command_line.common.options import (
    RUNS,
    Checkpoint,
    Json,
    OutputDir,
    Target,
    find_checkpoint,
    report_skipped,
)
from rl_training.command_line.common.output import print_json
from rl_training.errors import CheckpointError


def inspect(target: Target, checkpoint: Checkpoint = None, output_dir: OutputDir = RUNS, as_json: Json = False) -> None:
    """Show the contents of a checkpoint and verify its files."""
    from rl_training.command_line.common.checkpoint_report import make_report, show_report

    path, skipped = find_checkpoint(target, output_dir, checkpoint)
    report_skipped(skipped)
    report = make_report(path) | {"skipped": skipped}
    if as_json:
        print_json(report)
    else:
        show_report(report)
    if not report["verified"]:
        raise CheckpointError(report["problems"][0])
