"""The result of a run: where it ended, what it was worth, and what the user must know about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.diagnosis.run_finding import Finding
from rl_training.errors import RLTrainingError
from rl_training.runtime.agent import Agent
from rl_training.runtime.evaluation import EvalResult
from rl_training.text import describe_error, one_line


@dataclass(frozen=True)
class TrainResult:
    """Where a run ended. An `interrupted` run was stopped early and can be resumed.

    `evaluation_error` is what ended the last evaluation of a run that was trained to its end. The run is finished and
    saved all the same, and its agent is here. `unused` says why `unused_steps` of the budget are left over.
    `stop_reason` says why a run stopped by itself; it is finished. `callback_failures` names callbacks that raised.
    `findings` say what seems wrong with the training.
    """

    run_dir: Path
    checkpoint: Path
    env_steps: int
    wall_seconds: float
    steps_per_second: float
    evaluation: EvalResult | None
    interrupted: bool
    agent: Agent
    failed_saves: int = 0
    evaluation_error: Exception | None = None
    unused_steps: int = 0
    unused: str = ""
    stop_reason: str | None = None
    callback_failures: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def seed(self) -> int:
        return self.agent.config.seed

    def summary(self) -> dict[str, Any]:
        return {
            "run_dir": str(self.run_dir),
            "checkpoint": str(self.checkpoint),
            "env_steps": self.env_steps,
            "wall_seconds": round(self.wall_seconds, 3),
            "steps_per_second": round(self.steps_per_second, 1),
            "eval": None if self.evaluation is None else self.evaluation.summary(),
            **({"eval_error": self._evaluation_failure()} if self.evaluation_error else {}),
            **({"failed_saves": self.failed_saves} if self.failed_saves else {}),
            **({"unused_steps": self.unused_steps} if self.unused_steps else {}),
            **({"stop_reason": self.stop_reason} if self.stop_reason else {}),
            **({"callback_failures": list(self.callback_failures)} if self.callback_failures else {}),
            **({"findings": [finding.to_json() for finding in self.findings]} if self.findings else {}),
        }

    def warnings(self) -> list[str]:
        """Lines about the last evaluation that a user must see in every mode."""
        if self.evaluation_error is not None:
            return [f"the run is trained and saved, but its last evaluation failed: {self._evaluation_failure()}"]
        finding = None if self.evaluation is None else self.evaluation.finding
        return [] if finding is None else [finding]

    def _evaluation_failure(self) -> str:
        assert self.evaluation_error is not None
        expected = isinstance(self.evaluation_error, RLTrainingError)
        return one_line(self.evaluation_error, 1000) if expected else describe_error(self.evaluation_error)
