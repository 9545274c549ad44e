"""One seed of one row as an ordinary run directory: train it, continue it or set it aside, and score it."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from rl_training.config.evaluation_protocol import FIRST_EVAL_SEED, SCORE_EPISODES
from rl_training.config.loading import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.launcher import Stopped
from rl_training.runtime.loops import Progress
from rl_training.storage.checkpoint_format import MANIFEST
from rl_training.storage.checkpoints import list_checkpoints, read_manifest, verify_checkpoint
from rl_training.storage.durable_files import atomic_write_text, file_record, free_name, make_directory, read_json
from rl_training.storage.run_directory import RunDirectory, is_run_directory, open_run_directory, run_status
from rl_training.storage.run_lock import hold_lock
from rl_training.zoo.manifest import Entry

# Settings that differ between runs of one preset, or that `auto` resolves; they do not describe the preset.
PER_RUN = ("seed", "run_name", "output_dir", "threads", "device", "compile", "vector_backend")
SCORE, FAILURE = "score.json", ".failure.json"
SCORE_NUMBERS = ("mean_return", "env_steps", "wall_seconds")  # required by a table
LARGEST_NUMBER = 1e15
PATIENCE_SECONDS = 60.0
LOG = "zoo.log"

Score = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One seed of one row, up to a fraction of its budget."""

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
    def title(self) -> str:
        return f"{self.entry.name} seed {self.seed}"

    @property
    def kind(self) -> str:
        return self.entry.name

    @property
    def log_name(self) -> str:
        return LOG

    def work(self, watch: Callable[[int], bool]) -> None:
        train_and_score(self, watch)

    def note_failure(self, reason: str) -> None:
        note_failure(self, reason)

    @property
    def stop(self) -> int:
        return stop_at(self.entry, self.fraction)

    @property
    def lock_file(self) -> Path:
        """Next to the run directory, which a job does not have until it starts."""
        return Path(self.output_dir) / f".{self.run_name}.lock"

    @property
    def failure_file(self) -> Path:
        """Next to the run directory, which a job that fails early does not have."""
        return Path(self.output_dir) / (self.run_name + FAILURE)


def stop_at(entry: Entry, fraction: float) -> int:
    """Env steps after which a run stops. Its configured length stays the same, and so do its schedules."""
    return share_of(entry.preset.total_timesteps, fraction)


def share_of(steps: int, fraction: float) -> int:
    """Round up, but not for float errors: 0.07 * 100,000 is a little more than 7,000."""
    return math.ceil(round(fraction * steps, 6))


def settings(config: TrainConfig) -> dict[str, Any]:
    """The settings of a preset that are the same for all seeds and folders."""
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in PER_RUN}


def same_settings(stored: Path | dict[str, Any], config: TrainConfig) -> bool:
    """Whether a run with the stored settings is one of the preset. A field added since then has its default.

    Where the preset says `auto`, the run has the number that it chose. Settings without effect do not count, so that a
    new default of theirs does not outdate the runs.
    """
    if not isinstance(stored, (Path, dict)):  # a text in a file is not a path to follow
        return False
    expected = _effective(config)
    try:
        found = _effective(load_config(stored))
        return all(value == "auto" or found.get(key) == value for key, value in expected.items())
    except ConfigError:
        return False


def _effective(config: TrainConfig) -> dict[str, Any]:
    every = settings(config) | {"runtime": config.runtime.resolved(config.algo).model_dump(mode="json")}
    ignored = config.algo_kwargs.without_effect()
    return every | {"algo_kwargs": {key: value for key, value in every["algo_kwargs"].items() if key not in ignored}}


def set_aside(run_dir: Path) -> None:
    """Rename an outdated run instead of deleting it; CheckpointError while another process uses it.

    That process writes by path: after a rename, its checkpoints would end up in the run that replaces this one.
    """
    if run_dir.is_dir():
        with RunDirectory(run_dir).lock():
            pass  # released before the rename: Windows cannot rename a directory with an open file
    run_dir.rename(free_name(run_dir.with_name(f"old-{run_dir.name}")))


def stored_score(job: Job) -> Score | None:
    """The score of a finished run; None if there is none, it is of another checkpoint, or the preset has changed."""
    try:
        score = read_json(job.run_dir / SCORE)
    except CheckpointError:
        return None  # missing, or cut off by a power failure: the run is scored again
    if not isinstance(score, dict) or not all(is_number(score.get(key)) for key in SCORE_NUMBERS):
        return None  # edited, or from another version: the run is scored again
    if not same_settings(score.get("settings", {}), job.entry.preset) or not _is_of_last_step(score, job.run_dir):
        return None
    return score


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value from a file is a finite number of a sensible size; True is not a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def saved_steps(run_dir: Path) -> int:
    """Env steps at the last save; 0 for a run that was killed before its first save."""
    steps = open_run_directory(run_dir).read_info().get("env_steps") if is_run_directory(run_dir) else None
    return int(steps) if is_number(steps) else 0


def _is_of_last_step(score: Score, run_dir: Path) -> bool:
    """Whether the score was made from the last step of a finished run, and from the checkpoint that is there now.

    The checkpoint may have been deleted to save space, and older scores do not name it.
    """
    if run_status(run_dir) != "finished" or saved_steps(run_dir) != score["env_steps"]:
        return False
    checkpoint = score.get("checkpoint")
    if not isinstance(checkpoint, dict):
        return checkpoint is None
    present = {path.name: path for path in list_checkpoints(run_dir, "resume")}
    path = present.get(str(checkpoint.get("name")))
    return path is None or _identity(path) == checkpoint


def _identity(checkpoint: Path) -> dict[str, str]:
    """The name of a checkpoint and the digest of its manifest, which holds the digests of its other files."""
    try:
        digest = file_record(checkpoint / MANIFEST)["sha256"]
    except (CheckpointError, OSError):
        digest = "unreadable"
    return {"name": checkpoint.name, "manifest": digest}


def stored_failure(job: Job) -> str | None:
    """Why the last attempt failed, without the output folder, which is only noise in a table."""
    try:
        return str(read_json(job.failure_file)["reason"]).replace(f"{job.output_dir}/", "")
    except (CheckpointError, KeyError, TypeError):
        return None


def note_failure(job: Job, reason: str) -> None:
    """For the table; the benchmark itself also prints it, so a full disk must not end the other jobs."""
    with contextlib.suppress(OSError):
        Path(job.output_dir).mkdir(parents=True, exist_ok=True)
        atomic_write_text(job.failure_file, json.dumps({"reason": reason}) + "\n")


def is_done(job: Job) -> bool:
    """Whether nothing is left to train or score. A fraction of a budget is done when the run has reached it."""
    if stored_score(job) is not None:
        return True
    if job.fraction >= 1 or not same_settings(job.run_dir / "config.yaml", job.entry.preset):
        return False
    return saved_steps(job.run_dir) >= job.stop


def train_and_score(job: Job, watch: Callable[[int], bool] = lambda env_steps: True) -> None:
    """Train or continue one seed, then evaluate its last checkpoint. `watch` receives the env steps and returns False
    to stop."""
    with _owned(job):
        if not is_done(job):
            _train_and_score(job, watch)


@contextlib.contextmanager
def _owned(job: Job) -> Iterator[None]:
    """Reserve a job from before its run directory exists until it is scored: two benchmarks never do the same job.

    A worker of a killed benchmark exits after its rollout, so wait for a while. The lock file stays: removing it would
    let two processes hold locks on two files of the same name.
    """
    make_directory(Path(job.output_dir))
    with hold_lock(job.lock_file, job.run_name, patience=PATIENCE_SECONDS):
        yield


def _train_and_score(job: Job, watch: Callable[[int], bool]) -> None:
    run_dir = job.run_dir
    job.failure_file.unlink(missing_ok=True)
    _wait_for(run_dir)
    if run_dir.exists() and not same_settings(run_dir / "config.yaml", job.entry.preset):
        set_aside(run_dir)
    seconds = _train(job, watch)
    job.failure_file.unlink(missing_ok=True)  # left by another benchmark that found the run in use
    if seconds is None:
        return
    from rl_training.experiment.registry import get_learner
    from rl_training.runtime.workflows import evaluate_checkpoint

    checkpoint = _newest(job, exact=False)
    if checkpoint is None:
        raise CheckpointError(f"{run_dir}: finished, but no checkpoint verifies; move the run away to train it again")
    env_steps, end = read_manifest(checkpoint).env_steps, saved_steps(run_dir)
    if env_steps < end:
        raise CheckpointError(
            f"{run_dir}: the last checkpoint, at step {end:,}, is damaged, and the one at {env_steps:,} cannot score "
            "the full run; move the run away to train it again"
        )
    evaluation = evaluate_checkpoint(checkpoint, episodes=SCORE_EPISODES, seed=FIRST_EVAL_SEED)
    policies = {
        policy: evaluate_checkpoint(
            checkpoint, episodes=SCORE_EPISODES, seed=FIRST_EVAL_SEED, policy=policy
        ).mean_return
        for policy in get_learner(job.entry.algorithm).policies
    }
    score = (
        evaluation.summary()
        | ({"policies": policies} if policies else {})
        | {
            "env_steps": env_steps,
            "wall_seconds": seconds,
            "checkpoint": _identity(checkpoint),
            "settings": settings(job.entry.preset),
        }
    )
    atomic_write_text(run_dir / SCORE, json.dumps(score, indent=1) + "\n")


def _train(job: Job, watch: Callable[[int], bool]) -> float | None:
    """Wall-clock seconds of the finished run; None if only a fraction was requested."""
    from rl_training.runtime.workflows import resume, train

    run_dir = job.run_dir
    if is_run_directory(run_dir) and run_status(run_dir) == "finished":
        seconds = open_run_directory(run_dir).read_info().get("wall_seconds")
        return float(seconds) if is_number(seconds) else 0.0
    keep_going = True

    def callback(progress: Progress) -> bool:
        nonlocal keep_going
        keep_going = watch(progress.env_steps)
        return keep_going and (job.fraction >= 1 or progress.env_steps < job.stop)

    checkpoint = _newest(job, exact=True)
    if checkpoint is None:
        if run_dir.exists():
            set_aside(run_dir)  # stopped before its first save
        result = train(job.config, show=False, callback=callback)
    else:
        result = resume(checkpoint, show=False, callback=callback)
    if result.run_dir.resolve() != run_dir.resolve():
        raise CheckpointError(f"{run_dir}: another process made this run; {result.run_dir} was trained instead of it")
    if result.interrupted and (not keep_going or job.fraction >= 1 or result.env_steps < job.stop):
        raise Stopped(f"stopped at env step {result.env_steps:,}")
    return None if result.interrupted else result.wall_seconds


def _newest(job: Job, *, exact: bool) -> Path | None:
    """The newest checkpoint that verifies. Training continues from exact checkpoints only, so that a table does not
    depend on when a run was interrupted."""
    for path in list_checkpoints(job.run_dir, "resume"):
        try:
            usable = not verify_checkpoint(path, segments="hash" if exact else "skip")
            if not usable or (exact and not read_manifest(path).exact):
                continue
            stored = read_json(path / "config.json")
        except CheckpointError:
            continue
        # config.yaml may have been edited since; only the checkpoint knows which settings were used.
        if not same_settings(stored, job.entry.preset):
            raise CheckpointError(
                f"{path}: its settings differ from the preset of {job.entry.name}; "
                f"move {job.run_dir} away to train it again"
            )
        return path
    return None


def _wait_for(run_dir: Path) -> None:
    """Wait for a worker of a killed benchmark, which exits after its rollout. A process that holds the run longer keeps
    it: `set_aside` and `resume` need its lock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_run_directory(run_dir) and run_status(run_dir) == "running" and time.monotonic() < deadline:
        time.sleep(0.2)
