"""Start runs and kill them: `python kill_nursery.py ALGORITHM KILLS FOLDER` prints a report as JSON.

This is a separate process that imports everything once and then forks a child for each run, so that no run waits for
imports.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.config.loading import load_config
from rl_training.runtime.workflows import resume, train
from rl_training.storage import durable_files
from rl_training.storage.checkpoints import latest_checkpoint, list_checkpoints
from run_cases import assert_same_run

INTERVAL = 200
STEPS = 6 * INTERVAL
SETTINGS = {
    # A rollout of 40 steps divides the interval, so that checkpoints are exactly at its multiples.
    "ppo": {"num_envs": 2, "algo_kwargs": {"num_steps": 20, "minibatch_size": 20, "update_epochs": 2}},
    "dqn": {"algo_kwargs": {"learning_starts": 50, "batch_size": 8, "buffer_size": 700}},
}


def crash_points() -> list[str]:
    """All crash points of the saver that a run passes; `old-moved` belongs to exports, which have their own drill."""
    sources = Path(durable_files.__file__).parent.glob("*.py")
    names = {name for path in sources for name in re.findall(r'crash_point\("([a-z-]+)"\)', path.read_text())}
    return sorted(names - {"old-moved"})


class Nursery:
    def __init__(self, algorithm: str, folder: Path) -> None:
        self.algorithm, self.folder = algorithm, folder
        self.random = random.Random(f"kill {algorithm}")
        self.shared = mmap.mmap(-1, 8)  # the env steps of the child, which the parent reads
        started = time.monotonic()
        assert os.waitpid(self.fork("whole"), 0)[1] == 0, "the uninterrupted run failed"
        self.seconds = time.monotonic() - started
        self.report: dict[str, Any] = {"kills": 0, "kills_before_first_save": 0, "most_lost": 0, "compared": 0}

    def config(self, name: str) -> Any:
        base = {"algo": self.algorithm, "env_id": "CartPole-v1", "seed": 5, "run_name": name, "eval_episodes": 1}
        base |= {"total_timesteps": STEPS, "checkpoint_every": INTERVAL, "eval_every": 300, "log_every": 100}
        base |= {"keep_checkpoints": 2, "output_dir": str(self.folder), "model": {"hidden_sizes": [16]}}
        return load_config(base | SETTINGS[self.algorithm])

    def fork(self, name: str, crash_at: tuple[str, int] | None = None) -> int:
        """Fork a child that starts the run or resumes it; return its process id."""
        run = self.folder / name
        if run.exists() and not list_checkpoints(run, "resume"):
            shutil.rmtree(run)  # killed before its first save, so that there is nothing to resume
        self.shared[:] = bytes(8)
        child = os.fork()
        if child:
            return child
        try:
            if run.exists():
                resume(run, callback=self.callback(crash_at), show=False)
            else:
                train(self.config(name), callback=self.callback(crash_at), show=False)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)

    def callback(self, crash_at: tuple[str, int] | None) -> Callable[[Any], None]:
        def look(progress: Any) -> None:
            self.shared[:] = progress.env_steps.to_bytes(8, "little")
            if crash_at is not None and progress.env_steps >= crash_at[1]:
                os.environ[durable_files.CRASH_VARIABLE] = crash_at[0]

        return look

    def account(self, name: str) -> None:
        """Record what the last kill cost: the env steps that no checkpoint has."""
        done = int.from_bytes(self.shared[:], "little")
        if not list_checkpoints(self.folder / name, "resume"):
            assert done == 0, "the run took steps before its first save"
            self.report["kills_before_first_save"] += 1
            return
        newest = latest_checkpoint(self.folder / name)
        assert newest.skipped == [], "a checkpoint with a valid name is damaged"
        self.report["most_lost"] = max(self.report["most_lost"], done - newest.env_steps)

    def compare(self, name: str) -> None:
        assert_same_run(self.folder / name, self.folder / "whole")
        self.report["compared"] += 1
        shutil.rmtree(self.folder / name)

    def kill_at_random(self, kills: int) -> None:
        """Kill a run at random moments and resume it until it reaches its end; then start the next run."""
        chain = 0
        while self.report["kills"] < kills:
            child = self.fork(f"random{chain}")
            time.sleep(self.random.uniform(0.0, 0.6 * self.seconds))
            os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status == 0:
                self.compare(f"random{chain}")
                chain += 1
                continue
            assert status == -signal.SIGKILL, "a run failed without a kill"
            self.report["kills"] += 1
            self.account(f"random{chain}")
        self.finish(f"random{chain}")

    def crash_at_every_point(self) -> None:
        reached = []
        for point in crash_points():
            child = self.fork(point, (point, STEPS // 3))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status in (0, 137), f"the run failed before it reached {point}"
            if status == 137:
                reached.append(point)
                self.account(point)
                self.finish(point)
            else:
                self.compare(point)
        self.report["crash_points"] = reached

    def finish(self, name: str) -> None:
        assert os.waitpid(self.fork(name), 0)[1] == 0, f"{name} could not be resumed"
        self.compare(name)


if __name__ == "__main__":
    nursery = Nursery(sys.argv[1], Path(sys.argv[3]))
    nursery.kill_at_random(int(sys.argv[2]))
    nursery.crash_at_every_point()
    print(json.dumps(nursery.report))
