"""The memory that is available, and whether a replay buffer or a rollout fits into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from rl_training.errors import ConfigError
from rl_training.terminal import print_error

LARGEST_SHARE = 0.8
WORTH_REPORTING = 500_000_000
CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")
# Limit, use, and the entry of memory.stat that can be reclaimed: of control groups of version 2, and of version 1.
UNIFIED_NAMES = ("memory.max", "memory.current", "inactive_file")
OLD_NAMES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes() -> int | None:
    """Memory that is free here, within the limits of a container or a job; None if the system does not say."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    for folder, unified in control_groups("memory"):
        limit, used, reclaimable = UNIFIED_NAMES if unified else OLD_NAMES
        with contextlib.suppress(OSError, ValueError):
            # "max" means no limit and is not a number. Cached pages can be reclaimed, so they do not count as used.
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            limits.append(left + _entry(folder / "memory.stat", reclaimable))
    return min(limits, default=None)


def control_groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Every control group of this process up to the root, and whether it is of version 2. Each may have a limit.

    /proc/self/cgroup has a line number:controllers:path for each hierarchy; version 2 has number 0. Inside a container
    the root is often the group of the container itself, and the path exists only outside.
    """
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUP / controller if controllers else CGROUP
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            yield folder, not controllers
            if folder == root:
                break


def _entry(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be reserved. Torch has no type of its own for that on the CPU."""
    words = ("allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def check_rollout_fits(needed: int, rows: int) -> None:
    """Refuse a rollout that would take more than its share, before it is collected."""
    available = available_bytes()
    if available is not None and needed > LARGEST_SHARE * available:
        raise ConfigError(
            f"algo_kwargs.num_steps: a rollout of {rows:,} steps needs {needed / 1e9:.1f} GB, but only "
            f"{LARGEST_SHARE:.0%} of the {available / 1e9:.1f} GB available may be used: lower num_steps or num_envs",
            key="algo_kwargs.num_steps",
        )


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
    if needed >= WORTH_REPORTING:
        of = "" if available is None else f" of {available / 1e9:.1f} GB available"
        print_error(f"replay buffer of {buffer_size:,} steps: {needed / 1e9:.2f} GB{of}")
