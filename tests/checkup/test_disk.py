"""The output directory: space, sync and locks. Nothing is left behind."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.checkup import disk as disks
from rl_training.checkup.disk import Disk, check_disk, look_at_disk, mount_of, size
from rl_training.checkup.finding import Finding

HEALTHY = Disk("runs", Path("/data/runs"), None, 500_000_000_000, 0.004, "works", "ext4", ("rw", "relatime"))


def faults(disk: Disk, needed: int = disks.LEAST_SPACE) -> list[Finding]:
    return [finding for finding in check_disk(disk, needed) if finding.status != "ok"]


def ticking(step: float) -> Callable[[], float]:
    numbers = itertools.count()
    return lambda: next(numbers) * step


def test_a_sound_disk_has_neither_warnings_nor_failures() -> None:
    assert faults(HEALTHY) == []
    details = [finding.detail for finding in check_disk(HEALTHY)]
    assert details[0] == "output_dir runs (ext4): 500 GB free"
    assert details[1] == "4 ms to sync a file of 1 MB"


def test_a_real_directory_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    disk = look_at_disk(str(tmp_path), ticking(0.25))
    assert (disk.problem, disk.lock, disk.sync_seconds) == (None, "works", 0.25)
    assert disk.free > 0
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    disk = look_at_disk(str(tmp_path / "a" / "b"))
    assert (disk.folder, disk.problem) == (tmp_path, None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    (finding,) = faults(look_at_disk(str(tmp_path / "runs")))
    assert (finding.status, finding.what) == ("fail", "disk")
    assert finding.detail.endswith("runs cannot be written (it is not a directory)")
    assert finding.fix == "free some space, or choose another output_dir"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disks, "write_synced", full)
    (finding,) = faults(look_at_disk(str(tmp_path)))
    assert finding.status == "fail"
    assert finding.detail.endswith("cannot be written (No space left on device)")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_others_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *_: Any) -> None:  # the tests may run as root, whom no permission stops
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(disks, "make_own_directory", refused)
    (finding,) = faults(look_at_disk(str(tmp_path)))
    assert finding.detail.endswith("cannot be written (Permission denied)")


@pytest.mark.parametrize(
    ("refused", "lock", "status", "text"),
    [
        (lambda flags: True, "refused", "fail", "cannot be locked, and a run starts only if it can lock its directory"),
        (None, "shared", "warn", "can be locked again, so two processes could write to one run"),
    ],
)
def test_a_file_system_without_locks(
    refused: Callable[[int], bool] | None,
    lock: str,
    status: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def flock(descriptor: int, flags: int) -> None:
        if refused is not None and flags != fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    disk = look_at_disk(str(tmp_path), ticking(0.0))
    assert disk.lock == lock
    (finding,) = [each for each in faults(disk) if each.what == "lock"]
    assert finding.status == status and finding.detail.endswith(text)
    assert finding.fix == "mount the file system with locks, or choose another output_dir"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["nolock", "local_lock=flock", "local_lock=all"])
def test_locks_that_hold_on_one_machine_only(option: str) -> None:
    (finding,) = faults(replace(HEALTHY, file_system="nfs4", mount_options=("rw", option)))
    assert finding.detail == f"nfs4 is mounted with {option}, so locks hold on this machine only"
    assert faults(replace(HEALTHY, file_system="nfs4", mount_options=("rw", "local_lock=none"))) == []


def test_little_space_and_too_little_space() -> None:
    (finding,) = faults(replace(HEALTHY, free=1_500_000_000))
    assert (finding.status, finding.detail) == (
        "warn",
        "output_dir runs (ext4): 1.5 GB free, which a few runs can fill",
    )
    (finding,) = faults(replace(HEALTHY, free=1_500_000_000), needed=7_000_000_000)
    assert finding.status == "fail"
    assert finding.detail == "output_dir runs (ext4): 1.5 GB free, but the run needs 7.0 GB"


def test_a_slow_disk() -> None:
    (finding,) = faults(replace(HEALTHY, sync_seconds=2.5))
    assert (finding.status, finding.what) == ("warn", "sync")
    assert finding.detail == "2.5 s to sync a file of 1 MB: each checkpoint takes several times as long"
    assert finding.fix == "use an output_dir on a local disk, or raise checkpoint_every"


def test_the_mount_of_a_directory_is_the_innermost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = os.path.realpath(tmp_path)
    text = (
        f"/dev/sda / ext4 rw 0 0\nserver:/x {place} nfs4 rw,nolock 0 0\nshort\n/dev/sdb {place}/runs-old xfs rw 0 0\n"
    )
    (tmp_path / "mounts").write_text(text)
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "runs").mkdir()
    assert mount_of(tmp_path / "runs") == ("nfs4", ("rw", "nolock"))
    assert mount_of(Path("/")) == ("ext4", ("rw",))
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "missing")
    assert mount_of(tmp_path) == ("", ())


def test_sizes_to_read() -> None:
    assert [size(n) for n in (7, 12_000, 3_400_000, 56e9, 2.5e12)] == ["7 bytes", "12 kB", "3.4 MB", "56 GB", "2.5 TB"]
