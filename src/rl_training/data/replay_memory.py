"""How much memory there is, and whether a replay buffer fits into it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rl_training.errors import ConfigError

LARGEST_SHARE = 0.8
WORTH_TELLING = 500_000_000
CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def available_bytes() -> int | None:
    """Memory that can still be had here, within the limits of a container or a job; None where nobody says."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    for folder, limit, used, reclaimable in _cgroups():
        with contextlib.suppress(OSError, ValueError):
            # "max", where there is no limit, is no number. What is only cached makes way, so it does not count as used.
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            found.append(left + _entry(folder / "memory.stat", reclaimable))
    return min(found, default=None)


def _cgroups() -> Iterator[tuple[Path, str, str, str]]:
    """Every control group that this process is in, up to the root, and the names of its files: each may have a limit.

    /proc/self/cgroup has a line number:controllers:path for each hierarchy; that of version 2 is number 0. Inside a
    container the root is often its own group, and the path is one that only the outside knows.
    """
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/"]:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            root, names = CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        elif not controllers:
            root, names = CGROUP, ("memory.max", "memory.current", "inactive_file")
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            yield (folder, *names)
            if folder == root:
                break


def _entry(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def check_replay_fits(needed: int, buffer_size: int) -> None:
    """Refuse a buffer that would take more than its share, and tell the size of a large one, before it is allocated."""
    available = available_bytes()
    if available is not None and needed > LARGEST_SHARE * available:
        fitting = max(1, int(0.99 * buffer_size * LARGEST_SHARE * available / needed))
        raise ConfigError(
            f"algo_kwargs.buffer_size: the replay buffer needs {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are "
            f"available, of which it may take {LARGEST_SHARE:.0%}: use buffer_size={fitting} or less",
            key="algo_kwargs.buffer_size",
        )
    if needed >= WORTH_TELLING and sys.stderr is not None:
        of = "" if available is None else f" of {available / 1e9:.1f} GB available"
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"replay buffer of {buffer_size:,} steps: {needed / 1e9:.2f} GB{of}\n")
