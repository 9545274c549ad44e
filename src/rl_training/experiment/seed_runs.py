"""Train several configs side by side, each in its own process: the same runs as one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.errors import RLTrainingError
from rl_training.experiment.jobs_display import JobsDisplay
from rl_training.experiment.launcher import EXIT_OF_A_BUG, Stopped, Watch, launch
from rl_training.runtime.evaluation import EvalResult
from rl_training.runtime.output.train_result import TrainResult
from rl_training.runtime.workflows import train
from rl_training.text import clean_text

LOG = "train.log"


@dataclass(frozen=True)
class SeedResult:
    """What a worker process tells about a run that it trained. The agent stays in the files of the run."""

    seed: int
    run_dir: Path
    env_steps: int
    wall_seconds: float
    evaluation: EvalResult | None
    interrupted: bool
    summary: dict[str, Any]
    warnings: tuple[str, ...]
    exit_code: int  # of a last evaluation that failed; otherwise 0


@dataclass(frozen=True)
class SeedRuns:
    """The runs of all seeds that were trained, in the order of their configs."""

    results: tuple[SeedResult, ...]
    failures: dict[int, tuple[str, int]]  # by seed: the reason, and the exit code
    not_started: tuple[int, ...]  # seeds that a signal left untouched
    stopped: bool


@dataclass(frozen=True)
class SeedJob:
    """One config for a worker process."""

    config: TrainConfig

    @property
    def run_name(self) -> str:
        return f"seed {self.config.seed}"

    @property
    def title(self) -> str:
        return f"{self.config.algo} on {clean_text(self.config.env_id, 40)} seed {self.config.seed}"

    @property
    def kind(self) -> str:
        return self.config.algo

    @property
    def output_dir(self) -> str:
        return self.config.output_dir

    @property
    def log_name(self) -> str:
        return LOG

    @property
    def stop(self) -> int:
        return self.config.total_timesteps

    def work(self, watch: Watch) -> SeedResult:
        result = train(self.config, show=False, callback=lambda progress: watch(progress.env_steps))
        told = _told(result)
        if result.interrupted:
            raise Stopped(f"stopped after {result.env_steps:,} steps and saved", told)
        return told

    def note_failure(self, reason: str) -> None:
        """The summary at the end says it."""


def _told(result: TrainResult) -> SeedResult:
    error = result.evaluation_error
    code = 0 if error is None else error.exit_code if isinstance(error, RLTrainingError) else EXIT_OF_A_BUG
    return SeedResult(
        seed=result.seed,
        run_dir=result.run_dir,
        env_steps=result.env_steps,
        wall_seconds=result.wall_seconds,
        evaluation=result.evaluation,
        interrupted=result.interrupted,
        summary=result.summary(),
        warnings=tuple(result.warnings()),
        exit_code=code,
    )


def train_side_by_side(configs: Sequence[TrainConfig], jobs: int, *, show: bool | None = None) -> SeedRuns:
    """Train configs with distinct seeds, at most `jobs` at a time. Ctrl-C and SIGTERM stop and save all of them.

    A run that fails does not affect the others. What environments print goes to `train.log` in the output directory.
    """
    tasks = [SeedJob(config) for config in configs]
    with JobsDisplay(tasks, 0, enabled=show) as display:
        outcome = launch(tasks, jobs, display)
    seeds = {task.run_name: task.config.seed for task in tasks}
    ended = {*outcome.results, *outcome.failures}
    return SeedRuns(
        results=tuple(outcome.results[name] for name in seeds if name in outcome.results),
        failures={seeds[name]: (why, outcome.exit_codes[name]) for name, why in outcome.failures.items()},
        not_started=tuple(seed for name, seed in seeds.items() if name not in ended),
        stopped=outcome.stopped,
    )
