"""One seed of one row as an ordinary run directory: made, gone on with, kept or set aside, and scored by one rule."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED, SCORE_EPISODES
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.loops import Progress
from rl_training.runtime.run_saver import free_name
from rl_training.storage.checkpoints import list_checkpoints, read_manifest, verify_checkpoint
from rl_training.storage.durable_files import atomic_write_text, read_json
from rl_training.storage.run_directory import RunDirectory, is_run_directory, open_run_directory, run_status
from rl_training.zoo.manifest import Entry

# What differs between two runs of one preset, or is what `auto` came to, and says nothing about the preset.
PER_RUN = ("seed", "run_name", "output_dir", "threads", "device", "compile", "vector_backend")
SCORE, FAILURE = "score.json", ".failure.json"
SCORE_NUMBERS = ("mean_return", "env_steps", "wall_seconds")  # what a table cannot do without
PATIENCE_SECONDS = 60.0

Score = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One seed of one row, up to a share of its budget."""

    entry: Entry
    seed: int
    output_dir: str
    fraction: float = 1.0

    @property
    def config(self) -> TrainConfig:
        changes = {"seed": self.seed, "run_name": self.run_name, "output_dir": self.output_dir, "threads": 1}
        return load_config(self.entry.preset, changes)

    @property
    def run_name(self) -> str:
        return f"{self.entry.run_prefix}-seed{self.seed}"

    @property
    def run_dir(self) -> Path:
        return Path(self.output_dir) / self.run_name

    @property
    def stop(self) -> int:
        return stop_at(self.entry, self.fraction)

    @property
    def failure_file(self) -> Path:
        """Beside the run directory: what cannot even start has none."""
        return Path(self.output_dir) / (self.run_name + FAILURE)


def stop_at(entry: Entry, fraction: float) -> int:
    """Env steps after which a run stops: a shortened run would have other schedules, so its beginning is taken."""
    return share_of(entry.preset.total_timesteps, fraction)


def share_of(steps: int, fraction: float) -> int:
    """Rounded up; as a float, 0.07 of 100,000 is a little more than 7,000."""
    return math.ceil(round(fraction * steps, 6))


class Stopped(Exception):
    """The run was asked to stop, saved, and can be gone on with."""


def settings(config: TrainConfig) -> dict[str, Any]:
    """What a preset says, the same for all its seeds and wherever its runs are kept."""
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in PER_RUN}


def same_settings(stored: Path | dict[str, Any], config: TrainConfig) -> bool:
    """Whether stored settings, read by today's rules (a field that is new since has its default), are the preset's."""
    try:
        return settings(load_config(stored)) == settings(config)
    except ConfigError:
        return False


def set_aside(run_dir: Path) -> None:
    """Rename a run of older settings instead of deleting it; CheckpointError while another process has it.

    That process goes by the run's path: after a rename its checkpoints would land in the run that takes its place.
    """
    if run_dir.is_dir():
        with RunDirectory(run_dir).lock():
            pass  # only asked for: Windows renames no directory in which a file is open
    run_dir.rename(free_name(run_dir.with_name(f"old-{run_dir.name}")))


def stored_score(job: Job) -> Score | None:
    """The score of a finished run, unless the preset has changed since."""
    try:
        score = read_json(job.run_dir / SCORE)
    except CheckpointError:
        return None  # none yet, or torn by a power cut: it is made again from the run
    if not isinstance(score, dict) or not all(isinstance(score.get(key), (int, float)) for key in SCORE_NUMBERS):
        return None  # edited, or of another version: made again too
    return score if same_settings(score.get("settings", {}), job.entry.preset) else None


def stored_failure(job: Job) -> str | None:
    """Why the job failed when it was last tried; without the folder of all runs, which says nothing in a table."""
    try:
        return str(read_json(job.failure_file)["reason"]).replace(f"{job.output_dir}/", "")
    except (CheckpointError, KeyError, TypeError):
        return None


def note_failure(job: Job, reason: str) -> None:
    Path(job.output_dir).mkdir(parents=True, exist_ok=True)
    atomic_write_text(job.failure_file, json.dumps({"reason": reason}) + "\n")


def is_done(job: Job) -> bool:
    """Whether there is nothing to train or score; a part of a budget is done once the run has got that far."""
    if stored_score(job) is not None:
        return True
    if job.fraction >= 1 or not same_settings(job.run_dir / "config.yaml", job.entry.preset):
        return False
    return int(open_run_directory(job.run_dir).read_info().get("env_steps", 0)) >= job.stop


def train_and_score(job: Job, watch: Callable[[int], bool] = lambda env_steps: True) -> None:
    """Train, or go on with, one seed, then evaluate its last checkpoint. `watch` sees env steps and may say stop."""
    if is_done(job):
        return
    run_dir = job.run_dir
    job.failure_file.unlink(missing_ok=True)
    _wait_for(run_dir)
    if run_dir.exists() and not same_settings(run_dir / "config.yaml", job.entry.preset):
        set_aside(run_dir)
    seconds = _train(job, watch)
    job.failure_file.unlink(missing_ok=True)  # of another benchmark that found the run in use
    if seconds is None:
        return
    from rl_training.runtime.workflows import evaluate_checkpoint

    checkpoint = _newest(job, exact=False)
    if checkpoint is None:
        raise CheckpointError(f"{run_dir}: finished, but no checkpoint of it verifies; move it away to train it anew")
    env_steps, end = read_manifest(checkpoint).env_steps, open_run_directory(run_dir).read_info().get("env_steps")
    if end is not None and env_steps < end:
        raise CheckpointError(
            f"{run_dir}: its last checkpoint, at step {end:,}, is damaged, and one at {env_steps:,} is no score of the "
            "whole run; move the run away to train it anew"
        )
    evaluation = evaluate_checkpoint(checkpoint, episodes=SCORE_EPISODES, seed=FIRST_EVAL_SEED)
    score = evaluation.summary() | {
        "env_steps": env_steps,
        "wall_seconds": seconds,
        "settings": settings(job.entry.preset),
    }
    atomic_write_text(run_dir / SCORE, json.dumps(score, indent=1) + "\n")


def _train(job: Job, watch: Callable[[int], bool]) -> float | None:
    """Wall seconds of the finished run; None when only a part of it was wanted."""
    from rl_training.runtime.workflows import resume, train

    run_dir = job.run_dir
    if is_run_directory(run_dir) and run_status(run_dir) == "finished":
        return float(open_run_directory(run_dir).read_info().get("wall_seconds", 0.0))
    wanted = True

    def callback(progress: Progress) -> bool:
        nonlocal wanted
        wanted = watch(progress.env_steps)
        return wanted and (job.fraction >= 1 or progress.env_steps < job.stop)

    checkpoint = _newest(job, exact=True)
    if checkpoint is None:
        if run_dir.exists():
            set_aside(run_dir)  # stopped before its first save
        result = train(job.config, show=False, callback=callback)
    else:
        result = resume(checkpoint, show=False, callback=callback)
    if result.interrupted and (not wanted or job.fraction >= 1 or result.env_steps < job.stop):
        raise Stopped(f"stopped at env step {result.env_steps:,}")
    return None if result.interrupted else result.wall_seconds


def _newest(job: Job, *, exact: bool) -> Path | None:
    """The newest checkpoint that verifies. Only from an exact one does a run go on as if it had never stopped, and
    tables must not depend on when somebody pressed Ctrl-C."""
    for path in list_checkpoints(job.run_dir, "resume"):
        try:
            usable = not verify_checkpoint(path, segments="hash" if exact else "skip")
            if not usable or (exact and not read_manifest(path).exact):
                continue
            stored = read_json(path / "config.json")
        except CheckpointError:
            continue
        # The run's config.yaml says what the run is meant to be; only the checkpoint knows what it was trained with.
        if not same_settings(stored, job.entry.preset):
            raise CheckpointError(
                f"{path}: trained with other settings than the preset of {job.entry.name}; "
                f"move {job.run_dir} away to train it anew"
            )
        return path
    return None


def _wait_for(run_dir: Path) -> None:
    """The worker of a killed benchmark lives until it notices that nobody listens: a matter of one rollout. Whoever has
    the run for longer keeps it: `set_aside` and `resume` ask for its lock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_run_directory(run_dir) and run_status(run_dir) == "running" and time.monotonic() < deadline:
        time.sleep(0.2)
