"""Training processes, ours and those of peers, that are measured on demand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from works import Work

HERE = Path(__file__).resolve().parent
PEER_PYTHON = HERE.parent / ".venv-bench" / "bin" / "python"
PUFFER_PYTHON = HERE.parent / ".venv-puffer" / "bin" / "python"  # it needs an older NumPy and Gymnasium
CLEANRL_PYTHON = HERE.parent / ".venv-cleanrl" / "bin" / "python"  # and so does CleanRL
# Of peers that are not classes of Stable-Baselines3, sb3-contrib or SBX.
PYTHONS = {"pufferlib": PUFFER_PYTHON, "cleanrl": CLEANRL_PYTHON}
SCRIPTS = {"pufferlib": "puffer.py", "jax": "jax_peer.py", "cleanrl": "cleanrl_peer.py"}
WARM_UP = 3.0


class Worker:
    """A training process that is measured on demand."""

    def __init__(self, command: list[str], threads: int, environment: Mapping[str, str] | None = None):
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path, **(environment or {})}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tempfile.gettempdir(),  # PufferLib creates a link in the working directory
        )
        self._read()  # the end of the warm-up

    def rate(self, seconds: float) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        measured = self._read()
        return measured["steps"] / measured["seconds"]

    def _read(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self.process.args))[:120]} stopped; see its message above")
        measured: dict[str, float] = json.loads(line)
        return measured

    def stop(self) -> None:
        self.process.communicate("\n", timeout=120)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_ours(work: Work, warm_up: float = WARM_UP, environment: Mapping[str, str] | None = None) -> Worker:
    return start_config(work.ours, warm_up, environment, cores())


def start_config(
    config: Mapping[str, Any], warm_up: float, environment: Mapping[str, str] | None, threads: int, clock: str = "wall"
) -> Worker:
    """A worker for a config. With the key `preset`, the others change that packaged preset."""
    command = [sys.executable, str(HERE / "ours.py"), json.dumps(dict(config)), str(warm_up), clock]
    return Worker(command, threads, environment)


def start_peer(work: Work, threads: int, warm_up: float = WARM_UP) -> Worker:
    script = HERE / SCRIPTS.get(work.package, "peer.py")
    return Worker([str(peer_python(work)), str(script), json.dumps(work.peer), str(warm_up), str(threads)], threads)


def peer_python(work: Work) -> Path:
    return PYTHONS.get(work.package, PEER_PYTHON)


def peer_is_here(work: Work) -> bool:
    return cleanrl_is_here() if work.package == "cleanrl" else peer_python(work).exists()


def cleanrl_is_here() -> bool:
    """Its environment and a checkout of it (see clock_cleanrl.py)."""
    place = Path(os.environ.get("CLEANRL", HERE.parent / ".cleanrl"))
    return CLEANRL_PYTHON.exists() and (place / "cleanrl" / "ppo_atari_envpool.py").is_file()
