"""What a call of `train` or `resume` gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.runtime.agent import Agent
from rl_training.runtime.evaluation import EvalResult


@dataclass(frozen=True)
class TrainResult:
    """Where a run ended. `interrupted` means it was stopped early and can be resumed."""

    run_dir: Path
    checkpoint: Path
    env_steps: int
    wall_seconds: float
    steps_per_second: float
    evaluation: EvalResult | None
    interrupted: bool
    agent: Agent
    failed_saves: int = 0

    def summary(self) -> dict[str, Any]:
        return {
            "run_dir": str(self.run_dir),
            "checkpoint": str(self.checkpoint),
            "env_steps": self.env_steps,
            "wall_seconds": round(self.wall_seconds, 3),
            "steps_per_second": round(self.steps_per_second, 1),
            "eval": None if self.evaluation is None else self.evaluation.summary(),
            **({"failed_saves": self.failed_saves} if self.failed_saves else {}),
        }
