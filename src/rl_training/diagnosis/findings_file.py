"""The findings of a run during training: a sink of the metric stream that keeps them in `findings.jsonl`.

The file follows from the metric stream, so it needs no state in a checkpoint: a resumed run rebuilds it from the lines
that are left. Findings from wall-clock values are not in it, because equal runs do not share them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rl_training.config.train_config import TrainConfig
from rl_training.diagnosis.rule_book import Diagnosis, diagnose
from rl_training.diagnosis.run_finding import Finding
from rl_training.storage.durable_files import atomic_write_text
from rl_training.telemetry.metric_lines import METRICS_FILE, Line, iterate_lines
from rl_training.telemetry.sinks import Sink

FINDINGS_FILE = "findings.jsonl"


class FindingsSink(Sink):
    """Shows each metric line to the rules, passes new findings to `tell`, and keeps them in the run."""

    name = "findings"

    def __init__(self, run_dir: Path, config: TrainConfig, tell: Callable[[Finding], None]) -> None:
        self._run_dir, self._tell = run_dir, tell
        self._diagnosis = Diagnosis(config)
        self._is_written = True

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._diagnosis.findings)

    def rebuild(self) -> None:
        """Start from the lines that a resumed run has kept, as if they had just been written. Nothing is told again."""
        lines = iterate_lines(self._run_dir / METRICS_FILE, skip_damaged=True)
        self._diagnosis = diagnose(lines, self._diagnosis.config)
        self._write()

    def write(self, line: Line) -> None:
        found = self._diagnosis.look(line)
        if found:
            self._write()
        for finding in found:
            self._tell(finding)

    def _write(self) -> None:
        """Replace the file. If that fails, for example on a full disk, `flush` tries again."""
        lines = [json.dumps(finding.to_json()) + "\n" for finding in self.findings if finding.exact]
        path = self._run_dir / FINDINGS_FILE
        try:
            if lines or path.exists():
                atomic_write_text(path, "".join(lines))
            self._is_written = True
        except OSError:
            self._is_written = False

    def flush(self) -> None:
        if not self._is_written:
            self._write()

    def close(self) -> None:
        self.flush()
