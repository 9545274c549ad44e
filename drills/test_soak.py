"""Items 10 and 14: memory, open files, threads and processes stay constant during a run.

`make drills` watches each run for two minutes. `make soak` (`--soak-minutes 30`) watches it for half an hour, with
narrower bounds; its figures are those of item 14.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cli_helpers import wait_for
from figures import SOAK, record_figure

MEMORY = 10
# One run for each training loop, and the one whose minibatches have ever new shapes. First come the env steps of the
# warm-up: on a busy machine they take longer than its seconds.
RUNS: dict[str, tuple[int, str, list[str]]] = {
    "PPO, envs in processes": (
        40_000,
        "ppo/cartpole",
        ["vector_backend=async", "num_envs=2", "num_steps=128", "minibatch_size=128"],
    ),
    "DQN, a buffer that overflows": (10_000, "dqn/cartpole", ["buffer_size=2000", "learning_starts=500"]),
    "Recurrent PPO, envs in processes": (
        60_000,
        "recurrent_ppo/cartpole_masked",
        ["vector_backend=async", "num_envs=4"],
    ),
}
ENDLESS = ["total_timesteps=1_000_000_000", "log_every=500", "checkpoint_every=4000", "eval_every=0", "compile=off"]


@dataclass(frozen=True)
class Plan:
    """How long a run is watched, after a warm-up, and which figures that gives.

    A run is watched for `seconds` and for `least_steps` env steps, whichever takes longer: on a busy machine a leak per
    step would otherwise have fewer steps to show in. `most_seconds` is for a run that makes no progress. If memory
    grows, the run is watched again, up to `windows` times: a warm-up ends, and a leak does not.
    """

    item: int
    warm_up: float
    seconds: float
    most_growth: float  # megabytes per minute
    least_steps: int
    windows: int

    @property
    def most_seconds(self) -> float:
        return 10 * self.seconds + 1200

    @classmethod
    def of(cls, minutes: float) -> Plan:
        if not minutes:
            # Two minutes say little about a slow leak: noise of a megabyte would exceed a narrow bound.
            return cls(MEMORY, 50.0, 80.0, 1.0, 1000, 3)
        return cls(SOAK, 10 * minutes, 50 * minutes, 0.2, int(minutes * 5000), 1)


@dataclass(frozen=True)
class Watch:
    """What a run looked like while it was watched: seconds, and the `facts` of each of these moments."""

    times: list[float]
    table: np.ndarray
    steps: int

    @classmethod
    def of(cls, run: subprocess.Popen[str], runs: Path, plan: Plan) -> Watch:
        times, rows, first_step = [], [], env_steps(runs)
        started, steps = time.monotonic(), 0
        while (seconds := time.monotonic() - started) < plan.seconds or steps < plan.least_steps:
            assert run.poll() is None
            assert seconds < plan.most_seconds, f"{steps} env steps in {seconds:.0f} seconds"
            times.append(seconds)
            rows.append(facts(run.pid))
            time.sleep(plan.seconds / 200)
            steps = env_steps(runs) - first_step
        return cls(times, np.array(rows), steps)

    @property
    def growth(self) -> float:
        """Megabytes per minute."""
        return float(60 * np.polyfit(self.times, self.table[:, 0], 1)[0])

    @property
    def come_or_gone(self) -> int:
        """Open files, threads and processes: while a checkpoint is written there are more. The median ignores them."""
        middle = len(self.table) // 2
        halves = np.median(self.table[:middle, 1:], 0), np.median(self.table[middle:, 1:], 0)
        return int(np.abs(halves[1] - halves[0]).sum())


def family(process: int) -> Iterator[Path]:
    """The process and all its descendants, as folders in /proc."""
    folder = Path(f"/proc/{process}")
    yield folder
    for task in list((folder / "task").iterdir()):
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def facts(process: int) -> tuple[float, int, int, int]:
    """Megabytes, open files, threads and processes of a run and its env processes.

    Pages of files do not count: the kernel drops them and reads them again as it likes.
    """
    kilobytes = files = threads = processes = 0
    for folder in family(process):
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        kilobytes += sum(int(status[kind].split()[0]) for kind in ("RssAnon", "RssShmem"))
        files += len(list((folder / "fd").iterdir()))
        threads += int(status["Threads"])
        processes += 1
    return kilobytes / 2**10, files, threads, processes


def env_steps(runs: Path) -> int:
    lines = [line for metrics in runs.glob("*/metrics.jsonl") for line in metrics.read_text().splitlines()]
    return int(json.loads(lines[-1])["env_steps"]) if lines else 0


@pytest.mark.parametrize("name", RUNS)
def test_a_long_run_is_flat(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    plan = Plan.of(request.config.getoption("--soak-minutes"))
    warm_up_steps, preset, changes = RUNS[name]
    command = [sys.executable, "-m", "rl_training", "train", preset, "--output-dir", str(tmp_path), "--quiet"]
    for change in changes + ENDLESS:
        command += ["--set", change]
    run = subprocess.Popen(command, text=True)
    try:
        time.sleep(plan.warm_up)
        wait_for(lambda: env_steps(tmp_path) >= warm_up_steps, run, seconds=1200)
        for _ in range(plan.windows):
            watch = Watch.of(run, tmp_path, plan)
            if watch.growth < plan.most_growth:
                break
    finally:
        run.kill()
        run.wait()
    bound = f"< {plan.most_growth:g} MB/min"
    record_figure(plan.item, f"{name}: growth of memory after the warm-up", watch.growth, bound)
    gone = watch.come_or_gone
    record_figure(plan.item, f"{name}: open files, threads and processes that have come or gone", gone, "= 0")
    minutes = watch.times[-1] / 60
    record_figure(plan.item, f"{name}: minutes watched", minutes, f">= {0.99 * plan.seconds / 60:.3g} min")
    record_figure(plan.item, f"{name}: env steps meanwhile", watch.steps, f">= {plan.least_steps}")
