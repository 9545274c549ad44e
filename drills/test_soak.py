"""Item 10: memory is known before a run and constant during it, as are open files, threads and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from figures import record_figure

WARM_UP, SOAK = 50.0, 80.0
PREDICTION = """
import sys, numpy as np
from rl_training.data.replay_buffer import PriorityOptions, ReplayBuffer
from rl_training.data.replay_layout import ReplayLayout

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

kind, rng = sys.argv[1], np.random.default_rng(0)
options = {}
if kind == "vectors":
    layout = ReplayLayout(200_000, 8, (100,), "float32", (6,), "float32")
elif kind == "priorities":
    layout, options = ReplayLayout(600_000, 8, (20,), "float32", (), "int64"), {"prioritized": PriorityOptions()}
else:
    layout = ReplayLayout(20_000, 8, (4, 84, 84), "uint8", (), "int64", stack=4)
predicted = ReplayBuffer.predicted_bytes(layout, prioritized="prioritized" in options)
before = resident()
buffer = ReplayBuffer(layout, gamma=0.99, **options)
obs = rng.integers(0, 255, (8, *layout.observation_shape)).astype(layout.observation_dtype)
actions = np.zeros((8, *layout.action_shape), layout.action_dtype)
zeros, no = np.zeros(8, np.float32), np.zeros(8, bool)
for step in range(layout.slots):
    following = obs
    if kind == "frames":
        following = np.concatenate([obs[:, 1:], rng.integers(0, 255, (8, 1, 84, 84), np.uint8)], 1)
    buffer.add(obs, actions, zeros, following, no, no)
    obs = following
print((resident() - before) / predicted)
"""


@pytest.mark.parametrize("kind", ["vectors", "priorities", "frames"])
def test_a_filled_buffer_takes_what_was_predicted(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", PREDICTION, kind], capture_output=True, text=True, check=True)
    error = 100 * abs(float(done.stdout) - 1)
    record_figure(10, f"replay of {kind}: resident memory when full, off the prediction", error, "<= 1 %")


def facts(process: int) -> tuple[float, int, int, int]:
    """Resident megabytes, open files, threads and children of a process."""
    folder = Path(f"/proc/{process}")
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    tasks = list((folder / "task").iterdir())
    children = sum(len((task / "children").read_text().split()) for task in tasks)
    return resident, len(list((folder / "fd").iterdir())), len(tasks), children


RUNS = {
    "PPO, envs in processes": [
        "ppo/cartpole",
        "vector_backend=async",
        "num_envs=2",
        "num_steps=128",
        "minibatch_size=128",
    ],
    "DQN, a buffer that overflows": ["dqn/cartpole", "buffer_size=2000", "learning_starts=500"],
}


@pytest.mark.parametrize("name", RUNS)
def test_a_long_run_is_flat(name: str, tmp_path: Path) -> None:
    preset, *changes = RUNS[name]
    changes += ["total_timesteps=100_000_000", "log_every=500", "checkpoint_every=4000", "eval_every=0", "compile=off"]
    command = [sys.executable, "-m", "rl_training", "train", preset, "--output-dir", str(tmp_path), "--quiet"]
    for change in changes:
        command += ["--set", change]
    run = subprocess.Popen(command)
    try:
        time.sleep(WARM_UP)
        times, rows = [], []
        until = time.monotonic() + SOAK
        while time.monotonic() < until:
            assert run.poll() is None
            times.append(time.monotonic())
            rows.append(facts(run.pid))
            time.sleep(0.5)
    finally:
        run.kill()
        run.wait()
    table = np.array(rows)
    slope = 60 * np.polyfit(np.array(times) - times[0], table[:, 0], 1)[0]
    record_figure(10, f"{name}: growth of resident memory after the warm-up", slope, "< 1 MB/min")
    # While a checkpoint is written there are one or two more open files. The median ignores them.
    halves = np.median(table[: len(table) // 2, 1:], 0), np.median(table[len(table) // 2 :, 1:], 0)
    grown = int(np.abs(halves[1] - halves[0]).sum())
    record_figure(10, f"{name}: open files, threads and children that have come or gone", grown, "= 0")
