"""The memory that is available, and whether a replay buffer fits into it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rl_training.errors import ConfigError

LARGEST_SHARE = 0.8
WORTH_REPORTING = 500_000_000
CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def available_bytes() -> int | None:
    """Memory that is free here, within the limits of a container or a job; None if the system does not say."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    for folder, limit, used, reclaimable in _cgroups():
        with contextlib.suppress(OSError, ValueError):
            # "max" means no limit and is not a number. Cached pages can be reclaimed, so they do not count as used.
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            limits.append(left + _entry(folder / "memory.stat", reclaimable))
    return min(limits, default=None)


def _cgroups() -> Iterator[tuple[Path, str, str, str]]:
    """Every control group of this process, up to the root, with the names of its files. Each group may have a limit.

    /proc/self/cgroup has a line number:controllers:path for each hierarchy; version 2 has number 0. Inside a container
    the root is often the group of the container itself, and the path exists only outside.
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
    """Refuse a buffer that would take more than its share, and report the size of a large one, before allocation."""
    available = available_bytes()
    if available is not None and needed > LARGEST_SHARE * available:
        fitting = max(1, int(0.99 * buffer_size * LARGEST_SHARE * available / needed))
        raise ConfigError(
            f"algo_kwargs.buffer_size: the replay buffer needs {needed / 1e9:.1f} GB, but only {LARGEST_SHARE:.0%} of "
            f"the {available / 1e9:.1f} GB available may be used: set buffer_size={fitting} or less",
            key="algo_kwargs.buffer_size",
        )
    if needed >= WORTH_REPORTING and sys.stderr is not None:
        of = "" if available is None else f" of {available / 1e9:.1f} GB available"
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"replay buffer of {buffer_size:,} steps: {needed / 1e9:.2f} GB{of}\n")
