"""Run directories: one directory per run, and one writing process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, ConfigError
from rl_training.program import call
from rl_training.storage import run_lock
from rl_training.storage.durable_files import (
    atomic_write_text,
    free_name,
    make_directory,
    make_own_directory,
    remove_leftovers,
    sync_directory,
)
from rl_training.storage.real_files import (
    DIRECTORY_MODE,
    why_not_own_directory,
    why_not_own_file,
)
from rl_training.storage.run_file import MOST_RUNS, RUN_FILE, STATUSES, created_at, read_run_info
from rl_training.storage.run_lock import LOCK_FILE
from rl_training.text import one_line

__all__ = [
    "RunDirectory",
    "RunSummary",
    "absolute_output_dir",
    "atomic_write_text",
    "create_run_directory",
    "is_run_directory",
    "list_runs",
    "open_run_directory",
    "run_status",
    "summarize_run",
    "why_unreadable",
]

# Whatever a run appends to, or creates files in. Everything else is replaced by renaming, which follows no link.
_APPENDED = (LOCK_FILE, "metrics.jsonl")
_FOLDERS = ("checkpoints", "replay", "crash", "videos", "tensorboard", "wandb")
_REPLACED = (RUN_FILE, "config.yaml", "metrics.csv", "findings.jsonl")


@dataclass
class _Memory:
    """What this process knows about a run, whatever happens to its files."""

    info: dict[str, Any] = field(default_factory=dict)
    lock: int | None = None  # descriptors; open ones keep their inode numbers from being used again
    folder: int | None = None


@dataclass(frozen=True)
class RunDirectory:
    """One run: `path` contains its config, metrics, checkpoints and replay data.

    `path` is absolute: an environment may change the working directory. `named` is the path that the user gave.
    """

    path: Path
    named: Path = field(default=Path(), compare=False, repr=False)
    _memory: _Memory = field(default_factory=_Memory, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.path.name

    def shown(self, path: Path) -> Path:
        """`path`, inside the run, in the form that the user gave, unless the working directory has changed since."""
        with contextlib.suppress(ValueError, OSError):
            shown = self.named / path.relative_to(self.path)
            return shown if shown.absolute() == path else path
        return path

    def read_info(self) -> dict[str, Any]:
        """The valid fields of run.json."""
        return read_run_info(self.path)

    def update(self, **fields: Any) -> None:
        """Change fields of run.json atomically, for example `update(status="finished")`.

        Fields that are missing or damaged on the disk are restored from what this process knows.
        """
        self.check_in_place()
        info = {"status": "running", **self._memory.info, **self.read_info(), **fields}
        if info["status"] not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {info['status']!r}")
        self._memory.info = info
        try:
            atomic_write_text(self.path / RUN_FILE, json.dumps(info, indent=2) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"{self.path / RUN_FILE}: cannot be written ({one_line(error.strerror or error)}); free some space"
            ) from None

    def know(self, **fields: Any) -> None:
        """Remember fields for the case that run.json lacks them. Nothing is written."""
        found = self.read_info()
        if not found:  # nothing is left of run.json
            found = {"created": created_at({}, self.path).isoformat(), "number": next_run_number(self.path.parent)}
        self._memory.info = {**fields, **found}

    def folder(self, name: str) -> Path:
        """The directory `name` of this run, created if it is missing. It is a real directory, never a link."""
        self.check_in_place()
        try:
            return make_own_directory(self.path / name)
        except OSError as error:
            raise CheckpointError(
                f"{self.path / name}: cannot be written to ({one_line(error.strerror or error)}); "
                "free some space or choose another output_dir"
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Reserve the run for this process; a CheckpointError if another process has reserved it.

        The operating system releases the lock when its process dies, so there are no stale locks. Nothing is written to
        a run that has links where the library writes.
        """
        memory = self._memory
        try:
            self._refuse_links()
            memory.lock = run_lock.acquire(self.path)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot lock the run ({one_line(error.strerror)})") from None
        try:
            with contextlib.suppress(OSError):  # Windows cannot open a directory, nor rename one with an open file
                memory.folder = run_lock.hold(os.open(self.path, os.O_RDONLY))
            with contextlib.suppress(OSError):
                remove_leftovers(self.path, *_REPLACED)
            yield
        finally:
            run_lock.release(memory.folder)
            run_lock.release(memory.lock)
            memory.lock = memory.folder = None

    def check_in_place(self) -> None:
        """CheckpointError if the run, locked by this process, is no longer at its path.

        Writing by path would then create half a run, or write into another run that has taken the name.
        """
        if self._memory.lock is None:
            return
        if self._memory.folder is not None and not run_lock.is_at(self._memory.folder, self.path):
            raise CheckpointError(
                f"{self.path}: the run directory was moved or deleted during training; work since its last checkpoint "
                "is lost; resume the run from where it is now"
            )
        if not run_lock.is_at(self._memory.lock, self.path / LOCK_FILE):
            # The lock file was removed. Unless another process has taken the run, it is locked again.
            with contextlib.suppress(OSError):
                removed, self._memory.lock = self._memory.lock, run_lock.acquire(self.path)
                run_lock.release(removed)

    def _refuse_links(self) -> None:
        reasons = [(name, why_not_own_file(self.path / name)) for name in _APPENDED]
        reasons += [(name, why_not_own_directory(self.path / name)) for name in _FOLDERS]
        for name, why in reasons:
            if why is not None:
                way_out = "use a copy made with `cp -rL`" if "link" in why else "remove it"
                raise CheckpointError(
                    f"{self.path / name}: refused, {why}, and a run writes only to its own directory; {way_out}"
                )


@dataclass(frozen=True)
class RunSummary:
    """One row in the list of runs. `status` is "interrupted" if the process died without writing its status."""

    name: str
    path: Path
    status: str
    created: str
    algorithm: str | None
    env: str | None
    seed: int | None
    total_timesteps: int | None
    number: int = 0  # counts the runs of a directory; 0 in runs of older versions


def absolute_output_dir(output_dir: str | Path) -> Path:
    """`output_dir` as an absolute path; links in it are kept."""
    try:
        return Path(output_dir).absolute()
    except OSError:
        raise ConfigError(
            f"output_dir: {output_dir} is relative, and the working directory is gone; pass an absolute path"
        ) from None


def create_run_directory(
    output_dir: str | Path,
    name: str,
    *,
    algorithm: str | None = None,
    env: str | None = None,
    seed: int | None = None,
    total_timesteps: int | None = None,
) -> RunDirectory:
    """Create a new directory for one run; a name that is taken gets the suffix `-2`, `-3`, ..."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", name):
        raise ConfigError(f"run_name: {one_line(name)!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
    named = Path(output_dir)
    folder = absolute_output_dir(named)
    try:
        make_directory(folder)
        number = next_run_number(folder)
        path = _make_exclusive(folder, name)
        sync_directory(folder)
        info = {
            "status": "running",
            "created": datetime.now(timezone.utc).isoformat(),
            "number": number,
            "algorithm": algorithm,
            "env": env,
            "seed": seed,
            "total_timesteps": total_timesteps,
        }
        atomic_write_text(path / RUN_FILE, json.dumps(info, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(
            f"output_dir: cannot create a run in {named} ({one_line(error.strerror)}); choose another directory"
        ) from None
    return RunDirectory(path, named / path.name, _Memory(info))


def _make_exclusive(output_dir: Path, name: str) -> Path:
    while True:
        path = free_name(output_dir / name)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:  # another process took the name in the meantime
            continue
        return path


def next_run_number(output_dir: Path) -> int:
    """One more than the largest number of the runs in a directory. Unlike a clock, it never goes back."""
    numbers = [0]
    with contextlib.suppress(CheckpointError):  # a directory that can be written to but not listed
        numbers += [read_run_info(path).get("number", 0) for path in _entries(output_dir)]
    # A forged number at the limit makes later runs equal to it, and then the time of creation decides.
    return min(max(numbers) + 1, MOST_RUNS)


def is_run_directory(path: str | Path) -> bool:
    """Whether `path` has a run.json or checkpoints. A directory that cannot be read is not a run."""
    return os.path.isfile(os.path.join(path, RUN_FILE)) or os.path.isdir(os.path.join(path, "checkpoints"))


def open_run_directory(path: str | Path) -> RunDirectory:
    """Open an existing run; a CheckpointError if `path` is not a run."""
    path = Path(path)
    if not is_run_directory(path):
        reason = f"not a run directory{why_unreadable(path)}" if os.path.lexists(path) else "no such run directory"
        raise CheckpointError(f"{path}: {reason}; `{call('list', 'runs')}` shows the runs")
    return RunDirectory(path.absolute(), path)


def why_unreadable(path: Path) -> str:
    """For the end of a message about a directory: " (Permission denied)" if it cannot be read, or nothing."""
    try:
        os.scandir(path).close()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f" ({one_line(error.strerror)})"
    return ""


def list_runs(output_dir: str | Path) -> list[RunSummary]:
    """All runs in a directory, newest first. A run with an unreadable run.json has empty fields."""
    folder = Path(output_dir)
    runs = [summarize_run(path) for path in _entries(folder) if is_run_directory(path)]
    return sorted(runs, key=lambda run: (run.number, datetime.fromisoformat(run.created), run.name), reverse=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be read ({one_line(error.strerror)}); choose another directory"
        ) from None


def run_status(path: str | Path) -> str:
    """running, finished, interrupted or failed; a run whose process died is interrupted."""
    return summarize_run(Path(path)).status


def summarize_run(path: Path) -> RunSummary:
    """The row of one run in the list of runs."""
    info = read_run_info(path)
    status = info.get("status", "unknown")
    if status == "running" and not run_lock.is_locked(path):
        status = "interrupted"
    return RunSummary(
        name=path.name,
        path=path,
        status=status,
        created=created_at(info, path).isoformat(),
        algorithm=info.get("algorithm"),
        env=info.get("env"),
        seed=info.get("seed"),
        total_timesteps=info.get("total_timesteps"),
        number=info.get("number", 0),
    )
