"""Item 10: the memory of a replay buffer is known before a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from figures import record_figure

PREDICTION = """
import sys, numpy as np
from rl_training.data.priority_options import PriorityOptions
from rl_training.data.replay_buffer import ReplayBuffer
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
