"""How much memory there is, and whether a replay buffer fits into it."""

from __future__ import annotations

from pathlib import Path

from rl_training.errors import ConfigError

LARGEST_SHARE = 0.8
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


def check_replay_fits(needed: int) -> None:
    """Refuse a buffer that would take more than its share, before anything is allocated."""
    available = available_bytes()
    if available is not None and needed > LARGEST_SHARE * available:
        raise ConfigError(
            f"algo_kwargs.buffer_size: the replay buffer needs {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are "
            f"available: use a smaller one",
            key="algo_kwargs.buffer_size",
        )
