"""The experiment manager: starts runs from configs, finds them again, inspects and resumes them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

from rl_training.analysis.run_comparison import Comparison, compare_runs
from rl_training.analysis.run_diff import RunDiff, diff_runs
from rl_training.analysis.run_plot import Plot, plot_runs
from rl_training.config.arguments import whole_number
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.seed_runs import train_side_by_side
from rl_training.runtime.evaluation import EvalResult
from rl_training.runtime.workflows import TrainResult, evaluate_checkpoint, resume, train
from rl_training.storage.checkpoints import best_checkpoint, latest_checkpoint, list_checkpoints
from rl_training.storage.run_directory import list_runs, open_run_directory, run_status
from rl_training.telemetry.metric_lines import Line, read_metrics

Source = str | Path | Mapping[str, Any] | TrainConfig
Overrides = Mapping[str, Any] | Sequence[str]
Group = str | Sequence[str | Path]


@dataclass(frozen=True)
class RunRecord:
    """One run directory. Nothing is cached: every property reads the files as they are now."""

    path: Path
    result: TrainResult | None = field(default=None, repr=False, compare=False)  # if trained in this process

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> TrainConfig:
        return load_config(self.path / "config.yaml")

    @property
    def status(self) -> str:
        """running, finished, interrupted or failed; a run whose process died counts as interrupted."""
        return run_status(self.path)

    @property
    def env_steps(self) -> int:
        """Env steps at the newest checkpoint."""
        return int(open_run_directory(self.path).read_info().get("env_steps", 0))

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """Command, code, machine and versions of each time that this run was started or resumed."""
        return list(open_run_directory(self.path).read_info().get("sessions", []))

    @property
    def latest(self) -> Path:
        """The newest checkpoint that verifies."""
        return latest_checkpoint(self.path, segments="skip").path

    @property
    def best(self) -> Path:
        """The agent with the best evaluation."""
        return best_checkpoint(self.path).path

    def checkpoints(self) -> list[Path]:
        """All checkpoints, newest first."""
        return list_checkpoints(self.path)

    def metrics(self, kind: Literal["train", "eval"] | None = None) -> list[Line]:
        """The lines of the metric stream, or only those of training or of evaluation."""
        return [line for line in read_metrics(self.path) if kind in (None, line.get("kind"))]

    def evaluate(self, which: Literal["latest", "best"] = "latest", **options: Any) -> EvalResult:
        """Evaluate the newest or the best agent; options as in `workflows.evaluate_checkpoint`."""
        return evaluate_checkpoint(self.best if which == "best" else self.latest, **options)

    def resume(self, total_timesteps: int | None = None, **options: Any) -> RunRecord:
        """Continue from the newest good checkpoint, to a new total if given; options as in `workflows.resume`."""
        return RunRecord(self.path, resume(self.path, total_timesteps=total_timesteps, **options))


class ExperimentManager:
    """The runs under one directory, each with its config, metrics and checkpoints together.

    >>> from rl_training import ExperimentManager
    >>> manager = ExperimentManager("runs")
    >>> runs = manager.run("ppo/cartpole", {"total_timesteps": 512}, seeds=[0, 1], show=False)
    >>> [run.name for run in runs]
    ['ppo-CartPole-v1-seed0', 'ppo-CartPole-v1-seed1']
    >>> manager.open("latest").status
    'finished'
    """

    def __init__(self, output_dir: str | Path = "runs") -> None:
        self.output_dir = Path(output_dir)

    @overload
    def run(self, source: Source, overrides: Overrides = (), *, seeds: None = None, **options: Any) -> RunRecord: ...

    @overload
    def run(
        self, source: Source, overrides: Overrides = (), *, seeds: Sequence[int], jobs: int = 1, **options: Any
    ) -> list[RunRecord]: ...

    def run(
        self,
        source: Source,
        overrides: Overrides = (),
        *,
        seeds: Sequence[int] | None = None,
        jobs: int = 1,
        **options: Any,
    ) -> RunRecord | list[RunRecord]:
        """Train a preset, file, mapping or config under `output_dir`; with `seeds`, once per seed, in order.

        Options as in `workflows.train`. All configs are validated before the first run starts. `jobs` trains that many
        seeds at the same time, in processes of their own: the runs are the same. A script that uses it starts its work
        under `if __name__ == "__main__":`, and of the options only `show` is possible.
        """
        here, jobs = {"output_dir": str(self.output_dir)}, whole_number("jobs", jobs)
        if seeds is None and jobs > 1:
            raise ConfigError("jobs: trains seeds side by side, pass seeds such as [0, 1, 2]")
        if seeds is None:
            return self._run(load_config(source, overrides, here), options)
        configs = [load_config(source, overrides, {**here, "seed": seed}) for seed in seeds]
        if jobs > 1 and len(configs) > 1:
            return _side_by_side(configs, jobs, options)
        return [self._run(config, options) for config in configs]

    def runs(self) -> list[RunRecord]:
        """Every run, newest first."""
        return [RunRecord(run.path) for run in list_runs(self.output_dir)]

    def open(self, name: str) -> RunRecord:
        """The run of that name; `latest` is the newest."""
        names = [run.name for run in list_runs(self.output_dir)]
        if name == "latest" and names:
            name = names[0]
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1) or names[:1]
            hint = f"did you mean {close[0]!r}?" if close else "it has no runs yet"
            raise CheckpointError(f"{self.output_dir}: no run {name!r}, {hint}")
        return RunRecord(self.output_dir / name)

    def plot(self, runs: Sequence[str | Path], output: str | Path = "plot.png", **options: Any) -> Plot:
        """Draw metrics of runs to a file; runs and options as in `plot_runs`."""
        return plot_runs(runs, output, output_dir=self.output_dir, **options)

    def compare(self, first: Group, second: Group, *, metric: str | None = None) -> Comparison:
        """Compare two groups of runs by their last evaluation or by a metric, as `compare_runs` does."""
        return compare_runs(first, second, metric=metric, output_dir=self.output_dir)

    def diff(self, first: str | Path, second: str | Path) -> RunDiff:
        """What differs between two runs, as in `diff_runs`."""
        return diff_runs(first, second, output_dir=self.output_dir)

    def _run(self, config: TrainConfig, options: dict[str, Any]) -> RunRecord:
        result = train(config, **options)
        return RunRecord(result.run_dir, result)


def _side_by_side(configs: Sequence[TrainConfig], jobs: int, options: dict[str, Any]) -> list[RunRecord]:
    """The records of the runs that were trained; RLTrainingError, after all have ended, if one of them failed."""
    given = sorted(name for name in options if name != "show")
    if given:
        raise ConfigError(f"{given[0]}: cannot be used with jobs, because each run has its own process; use jobs=1")
    if len({config.seed for config in configs}) < len(configs):
        raise ConfigError("seeds: must be distinct with jobs; use jobs=1 to train a seed twice")
    runs = train_side_by_side(configs, jobs, show=options.get("show"))
    for seed, (why, _) in runs.failures.items():
        raise RLTrainingError(f"seed {seed} failed: {why}; the other runs are saved")
    return [RunRecord(result.run_dir) for result in runs.results]
