"""An env that starts programs and leaves them running, and ways to look for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from waiting import DEADLINE_SECONDS, wait_until

SLEEP = ["sleep", "600"]


class SpawningEnv(gym.Env[Any, Any]):
    """Its constructor starts one program in each of the `ways`, and writes their process ids to files in `folder`.

    `child` is a plain subprocess, `session` one in its own session, `daemon` one whose parent has ended, and `fork` a
    forked copy of this process, which holds its sockets. The process exits in the step in which the file `exit` exists.
    """

    def __init__(self, folder: str, ways: Iterable[str] = ("child", "session", "daemon", "fork")) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.folder = Path(folder)
        self.elapsed = 0
        self.started = []
        for way in ways:
            self._record(self._start(way), way)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.elapsed = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.elapsed += 1
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "exit").unlink()  # of several envs, one removes the file and exits
            os._exit(7)
        return np.zeros(2, np.float32), 1.0, self.elapsed == 20, False, {}

    def _start(self, way: str) -> int:
        if way == "daemon":
            words = ["sh", "-c", "sleep 600 >&- 2>&- & echo $!"]
            return int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        if way == "fork":
            process = os.fork()
            if process == 0:
                time.sleep(600)
                os._exit(0)
            return process
        self.started.append(subprocess.Popen(SLEEP, start_new_session=way == "session"))
        return self.started[-1].pid

    def _record(self, process: int, way: str) -> None:
        partial = self.folder / f"{process}.partial"
        partial.write_text(f"{way} {os.getpid()}")
        partial.rename(self.folder / f"{process}.started")


def started_programs(folder: Path, way: str = "", worker: int | None = None) -> list[int]:
    """The process ids of the programs that envs have started: all, or those of one way or one worker."""
    found = []
    for path in sorted(folder.glob("*.started")):
        how, parent = path.read_text().split()
        if way in ("", how) and worker in (None, int(parent)):
            found.append(int(path.stem))
    return found


def is_running(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end_programs(folder: Path) -> None:
    for process in filter(is_running, started_programs(folder)):
        os.kill(process, signal.SIGKILL)


def wait_until_gone(processes: Iterable[int], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until none of the processes runs; whatever the outcome, none is left."""
    processes = list(processes)
    try:
        wait_until(lambda: not any(map(is_running, processes)), seconds)
    finally:
        for process in filter(is_running, processes):
            os.kill(process, signal.SIGKILL)
