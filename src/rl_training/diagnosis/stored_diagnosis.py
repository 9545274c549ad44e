"""The diagnosis of a run that is on the disk, finished or not, from its config and its metric stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.loading import load_config
from rl_training.diagnosis.rule_book import diagnose
from rl_training.diagnosis.run_finding import Finding
from rl_training.errors import CheckpointError
from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines


@dataclass(frozen=True)
class StoredDiagnosis:
    """What the rules say about a stored run. Nothing in the run is changed."""

    run_dir: Path
    lines: int
    env_steps: int
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "run_dir": str(self.run_dir),
            "lines": self.lines,
            "env_steps": self.env_steps,
            "findings": [finding.to_json() for finding in self.findings],
        }


def diagnose_run(run_dir: Path | str) -> StoredDiagnosis:
    """Apply every rule to the metric stream of a run. Rules whose metrics an older run lacks say nothing."""
    run_dir = Path(run_dir)
    config = load_config(run_dir / "config.yaml")
    diagnosis = diagnose(iterate_lines(run_dir / METRICS_FILE), config)
    stream = diagnosis.stream
    if not stream.lines:
        raise CheckpointError(f"{run_dir / METRICS_FILE}: no metric lines yet; train the run first")
    return StoredDiagnosis(run_dir, stream.lines, stream.env_steps, tuple(diagnosis.findings))
