"""Callbacks that end a run by itself: at an evaluation return, or when evaluations stop improving."""

from __future__ import annotations

from typing import Any

from rl_training.runtime.callbacks.callback import Callback, RunContext


class StopAtReturn(Callback):
    """Stops the run when an evaluation has a mean return of at least `target`; the setting `stop_at_return`."""

    def __init__(self, target: float):
        self.target = target

    def on_evaluation(self, context: RunContext) -> None:
        assert context.evaluation is not None
        reached = context.evaluation.mean_return
        if reached >= self.target:
            context.stop(
                f"the evaluation at step {context.env_steps:,} has a mean return of {reached:,.1f}, "
                f"stop_at_return is {self.target:,g}"
            )


class StopWithoutImprovement(Callback):
    """Stops the run after `evaluations` evaluations in a row that do not beat the best one; the setting `patience`."""

    def __init__(self, evaluations: int):
        self.evaluations = evaluations
        self.best: float | None = None
        self.best_step = self.without = 0

    def on_evaluation(self, context: RunContext) -> None:
        assert context.evaluation is not None
        mean_return = context.evaluation.mean_return
        if self.best is None or mean_return > self.best:
            self.best, self.best_step, self.without = mean_return, context.env_steps, 0
            return
        self.without += 1
        if self.without >= self.evaluations:
            context.stop(
                f"{self.without} evaluations did not beat the mean return of {self.best:,.1f} at step "
                f"{self.best_step:,}, patience is {self.evaluations}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "without": self.without}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = None if state["best"] is None else float(state["best"])
        self.best_step, self.without = int(state["best_step"]), int(state["without"])
