"""The result of a run: where it ended, what it was worth, and what the user must know about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.diagnosis.run_finding import Finding
from rl_training.diagnosis.stream_summary import number
from rl_training.errors import RLTrainingError
from rl_training.runtime.agent import Agent
from rl_training.runtime.evaluation import EvalResult
from rl_training.telemetry.console_view import format_duration, format_return
from rl_training.telemetry.metric_lines import METRICS_FILE, iterate_lines
from rl_training.telemetry.notebook_view import run_html
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

    def _repr_html_(self) -> str:
        """What a notebook shows: the score, the curves and what seems wrong."""
        config = self.agent.config
        facts = {"env steps": f"{self.env_steps:,}", "seed": str(self.seed)}
        if self.evaluation is not None:
            spread, episodes = format_return(self.evaluation.std_return), len(self.evaluation.returns)
            facts["evaluation"] = f"{format_return(self.evaluation.mean_return)} ± {spread} ({episodes} episodes)"
        facts["time"] = f"{format_duration(self.wall_seconds)} ({self.steps_per_second:,.0f} steps/s)"
        facts["run"] = str(self.run_dir)
        notes = [*self.warnings(), *(str(finding) for finding in self.findings)]
        if self.stop_reason is not None:
            notes.insert(0, f"stopped: {self.stop_reason}")
        elif self.interrupted:
            notes.insert(0, "stopped early; `resume` continues it")
        return run_html(f"{config.algo} on {config.env_id}", facts, *stored_curves(self.run_dir), notes)

    def _evaluation_failure(self) -> str:
        assert self.evaluation_error is not None
        expected = isinstance(self.evaluation_error, RLTrainingError)
        return one_line(self.evaluation_error, 1000) if expected else describe_error(self.evaluation_error)


def stored_curves(run_dir: Path) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Step and return of the metric lines of a run: of training and of evaluations. Empty if it has none."""
    training: list[tuple[float, float]] = []
    evaluations: list[tuple[float, float]] = []
    for line in iterate_lines(run_dir / METRICS_FILE, skip_damaged=True, containing=b"mean_return"):
        name, curve = ("eval_mean_return", evaluations) if line.get("kind") == "eval" else ("mean_return", training)
        step, value = number(line.get("env_steps")), number(line.get(name))
        if step is not None and value is not None:
            curve.append((step, value))
    return training, evaluations
