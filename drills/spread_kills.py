"""Kill runs in every part of their length: `python spread_kills.py NAME KILLS FOLDER` prints a report as JSON.

The run has as many equal parts as there are kills, and each part gets one. A run that reaches its part says so through
a pipe, and a moment later it is killed from outside. It cannot leave the part before the kill, however busy the machine
is. Each run is killed and resumed several times and then compared with one that was never killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kill_nursery import INTERVAL, Nursery
from rl_training.config.loading import load_config
from rl_training.storage.checkpoints import best_checkpoint
from rl_training.storage.state_tree import state_hash
from run_cases import saved_state

STEPS = 12 * INTERVAL
CHAINS = 4  # runs, each of which is killed in every fourth part
MARK_VARIABLE = "RL_TRAINING_DRILL_MARK"  # all processes of this drill have it in their environment
PATIENCE_SECONDS = 10.0  # for processes to end after a kill
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn with priorities, three steps and envs in processes": {
        "algo": "dqn",
        "env_id": "CartPole-v1",
        "num_envs": 2,
        "vector_backend": "async",
        "algo_kwargs": {"prioritized": True, "n_step": 3, "importance_exponent": {"start": 0.4, "end": 1.0}},
    },
    "sac": {"algo": "sac", "env_id": "Pendulum-v1"},
}
REPLAY = {"learning_starts": 60, "batch_size": 8, "buffer_size": 1500}  # smaller than the run


class SpreadKills(Nursery):
    def __init__(self, name: str, folder: Path, kills: int) -> None:
        self.part = STEPS // kills
        self.window: tuple[int, int] | None = None  # kill between these env steps
        self.reached, self.tell = os.pipe()
        super().__init__(name, folder)
        self.report |= {"kills": kills, "parts": [], "most_processes": 0, "processes_left": 0}

    def config(self, name: str) -> Any:
        own = SETTINGS[self.algorithm]
        base = {"seed": 7, "run_name": name, "total_timesteps": STEPS, "checkpoint_every": INTERVAL, "log_every": 100}
        base |= {"eval_every": 300, "eval_episodes": 2, "keep_checkpoints": 2, "output_dir": str(self.folder)}
        base |= {"model": {"hidden_sizes": [16]}, **own, "algo_kwargs": {**REPLAY, **own.get("algo_kwargs", {})}}
        return load_config(base)

    def callback(self, crash_at: tuple[str, int] | None) -> Callable[[Any], None]:
        count, window = super().callback(crash_at), self.window

        def look(progress: Any) -> None:
            nonlocal window
            count(progress)
            if window is not None and progress.env_steps >= window[0]:
                os.write(self.tell, b"x")
                window = (STEPS + 1, window[1])
            if window is not None and progress.env_steps >= window[1]:
                time.sleep(3600)

        return look

    def kill_in_part(self, name: str, number: int) -> None:
        self.window = number * self.part + self.part // 4, (number + 1) * self.part
        child = self.fork(name)
        assert os.read(self.reached, 1) == b"x"
        time.sleep(self.random.uniform(0.0, self.seconds * self.part / STEPS))
        self.report["most_processes"] = max(self.report["most_processes"], len(self.others()))
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == -signal.SIGKILL, f"the run ended by itself with {status}"
        self.report["parts"].append((int.from_bytes(self.shared[:], "little") - 1) // self.part)
        self.window = None
        self.account(name)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.others() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.report["processes_left"] += len(self.others())

    def others(self) -> list[int]:
        """The processes of this drill beside this one: a run, its nursery and its envs."""
        mark = f"{MARK_VARIABLE}={os.environ[MARK_VARIABLE]}\0".encode()
        return [process for process in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_marked(process, mark)]

    def compare(self, name: str) -> None:
        best = [state_hash(saved_state(best_checkpoint(self.folder / run).path)) for run in (name, "whole")]
        assert best[0] == best[1], "the best agents differ"
        super().compare(name)


def is_marked(process: int, mark: bytes) -> bool:
    try:
        # A process that has ended has no environment, even before its parent asks for it.
        return process != os.getpid() and mark in Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return False


def main(name: str, kills: int, folder: Path) -> None:
    series = SpreadKills(name, folder, kills)
    for chain in range(CHAINS):
        for number in range(chain, kills, CHAINS):
            series.kill_in_part(f"chain{chain}", number)
        series.finish(f"chain{chain}")
    print(json.dumps(series.report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
