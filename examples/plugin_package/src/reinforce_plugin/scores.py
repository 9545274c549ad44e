"""A sink in a package of its own: it writes the mean return of each evaluation to `scores.txt` in the run directory."""

from __future__ import annotations

from typing import Any

from rl_training import Sink


class ScoresSink(Sink):
    """One line per evaluation: the step and the mean return. `digits` is an option in the config."""

    name = "scores"

    def __init__(self, digits: int = 1) -> None:
        self._digits = digits

    def open(self, run: Any) -> None:
        self._path = run.run_dir / "scores.txt"

    def write(self, line: dict[str, Any]) -> None:
        if line["kind"] == "eval":
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line['env_steps']} {line['eval_mean_return']:.{self._digits}f}\n")
