"""The directory of the runs: space, the time to make a file durable, and locks."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_training.checkup.finding import Finding, fail, ok, warn
from rl_training.errors import CheckpointError
from rl_training.storage import run_lock
from rl_training.storage.durable_files import (
    make_own_directory,
    release_temporary,
    remove_tree,
    temporary_sibling,
    write_synced,
)
from rl_training.text import one_line

LEAST_SPACE = 100_000_000  # a few checkpoints of small networks
SCARCE_SPACE = 2_000_000_000
SLOW_SYNC_SECONDS = 1.0  # a checkpoint syncs about ten files
TRIAL_BYTES = 2**20
# Mount options with which a lock on a network file system holds on one machine only.
LOCAL_LOCKS = ("nolock", "local_lock=all", "local_lock=flock")
MOUNTS = Path("/proc/self/mounts")

Lock = Literal["works", "refused", "shared"]


@dataclass(frozen=True)
class Disk:
    """The facts about an output directory. `folder` is the one that exists: itself, or the nearest parent."""

    output_dir: str
    folder: Path
    problem: str | None = None
    free: int = 0
    sync_seconds: float = 0.0
    lock: Lock = "works"
    file_system: str = ""
    mount_options: tuple[str, ...] = ()


def look_at_disk(output_dir: str, clock: Callable[[], float] = time.perf_counter) -> Disk:
    """Write, sync and lock a file where the runs will be. Nothing is left behind, and no directory is created."""
    path = Path(output_dir).absolute()
    folder = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    if not folder.is_dir():
        return Disk(output_dir, folder, problem="it is not a directory")
    trial = temporary_sibling(folder / "doctor")
    try:
        free = shutil.disk_usage(folder).free
        make_own_directory(trial)
        started = clock()
        write_synced(trial / "synced", bytes(TRIAL_BYTES))
        sync_seconds = clock() - started
        lock = _try_lock(trial)
    except OSError as error:
        return Disk(output_dir, folder, problem=one_line(error.strerror or error))
    finally:
        with contextlib.suppress(OSError):
            remove_tree(trial)
        release_temporary(trial)
    file_system, options = mount_of(folder)
    return Disk(output_dir, folder, None, free, sync_seconds, lock, file_system, options)


def _try_lock(folder: Path) -> Lock:
    """Lock a file as a run does, and see whether a second lock is refused."""
    try:
        with run_lock.hold_lock(folder / run_lock.LOCK_FILE, "the trial", 0.0):
            return "works" if run_lock.is_locked(folder) else "shared"
    except CheckpointError:
        return "refused"


def mount_of(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Kind and options of the file system of a directory; empty where the system does not say."""
    try:
        entries = [line.split(" ") for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return "", ()
    real = os.path.realpath(folder)
    best: tuple[int, str, tuple[str, ...]] = (-1, "", ())
    for entry in entries:
        if len(entry) < 4:
            continue
        place = entry[1].replace("\\040", " ")
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best[0]:  # of two mounts at one place, the later one hides the other
            best = (len(place), entry[2], tuple(entry[3].split(",")))
    return best[1], best[2]


def check_disk(disk: Disk, needed: int = LEAST_SPACE) -> Iterator[Finding]:
    """Findings about an output directory; a run needs at least `needed` bytes there."""
    name = f"output_dir {disk.output_dir}"
    another = "choose another output_dir"
    if disk.problem is not None:
        yield fail(
            "disk", f"{name}: {disk.folder} cannot be written ({disk.problem})", f"free some space, or {another}"
        )
        return
    kind = f" ({disk.file_system})" if disk.file_system else ""
    space = f"{name}{kind}: {size(disk.free)} free"
    if disk.free < needed:
        yield fail("disk", f"{space}, but the run needs {size(needed)}", f"free some space, or {another}")
    elif disk.free < SCARCE_SPACE:
        yield warn("disk", f"{space}, which a few runs can fill", f"free some space, or {another}")
    else:
        yield ok("disk", space)
    yield _judge_sync(disk)
    yield _judge_lock(disk, another)


def _judge_sync(disk: Disk) -> Finding:
    if disk.sync_seconds > SLOW_SYNC_SECONDS:
        detail = f"{disk.sync_seconds:.1f} s to sync a file of 1 MB: each checkpoint takes several times as long"
        return warn("sync", detail, "use an output_dir on a local disk, or raise checkpoint_every")
    return ok("sync", f"{1000 * disk.sync_seconds:.0f} ms to sync a file of 1 MB")


def _judge_lock(disk: Disk, another: str) -> Finding:
    if disk.lock == "refused":
        detail = f"files in {disk.folder} cannot be locked, and a run starts only if it can lock its directory"
        return fail("lock", detail, f"mount the file system with locks, or {another}")
    if disk.lock == "shared":
        detail = f"a locked file in {disk.folder} can be locked again, so two processes could write to one run"
        return warn("lock", detail, f"mount the file system with locks, or {another}")
    local = next((option for option in disk.mount_options if option in LOCAL_LOCKS), None)
    if local is not None and disk.file_system.startswith("nfs"):
        detail = f"{disk.file_system} is mounted with {local}, so locks hold on this machine only"
        return warn("lock", detail, "remove that mount option, or never resume a run on two machines at once")
    return ok("lock", "a run can be locked here")


def size(count: float) -> str:
    """Bytes to read: 12 kB, 3.4 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
