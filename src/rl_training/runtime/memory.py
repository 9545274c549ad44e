"""How much memory there is, and whether a replay buffer fits into it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from rl_training.errors import ConfigError

LARGEST_SHARE = 0.8
WORTH_TELLING = 500_000_000
CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that can still be had here, within the limits of a container; None where nobody says."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError):
        pass
    try:
        limit, used = (CGROUP / "memory.max").read_text().strip(), (CGROUP / "memory.current").read_text()
        if limit != "max":
            found.append(int(limit) - int(used))
    except (OSError, ValueError):
        pass
    return min(found, default=None)


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
