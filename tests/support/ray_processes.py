"""The processes that Ray has started below this one, found by what they call themselves."""

from __future__ import annotations

import os
from pathlib import Path

from rl_training.envs.processes.process_tree import descendants

ACTOR, GCS, RAYLET = "ray::RayActor", "gcs_server", "raylet/raylet"


def ray_processes(name: str, root: int | None = None) -> list[int]:
    """The descendants of a process, this one if none is given, whose command line has `name` in its first word."""
    return [process for process in descendants(os.getpid() if root is None else root) if name in _program(process)]


def _program(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""
