"""Kernels of an LSTM: oneDNN keeps one for each shape of a minibatch, so their number must be limited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import DEADLINE_SECONDS

SOURCE = Path(__file__).parents[2] / "src"
# More shapes than kernels are kept, twice. oneDNN reports on stdout which kernels it builds and which it has.
TWO_PASSES = """
import gymnasium as gym, torch
from rl_training.config.train_config import ModelConfig
from rl_training.data.recurrent_rollout_buffer import Sequences
from rl_training.envs.spaces import Spaces
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.recurrent.recurrence import MOST_KERNELS

spaces = Spaces(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2))
model = LSTMActorCritic(spaces, ModelConfig(hidden_sizes=(4,)), memory_size=4)
for number in range(2):
    print("pass", number, flush=True)
    for length in range(1, MOST_KERNELS + 2):
        rows = torch.arange(2 * length)
        place = rows.reshape(length, 2)
        sequences = Sequences(place >= 0, place, rows, torch.zeros(2, *model.memory_shape))
        outputs = model.evaluate_actions(torch.zeros(2 * length, 2), torch.zeros_like(rows), sequences)
        sum(output.sum() for output in outputs).backward()
"""


@pytest.mark.parametrize(
    "setting", [{}, {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024"}, {"DNNL_PRIMITIVE_CACHE_CAPACITY": "1024"}]
)
def test_kernels_of_old_shapes_are_dropped_unless_the_user_wants_them(setting: dict[str, str]) -> None:
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PYTHONPATH": str(SOURCE), "ONEDNN_VERBOSE": "profile_create", **setting}
    done = subprocess.run(
        [sys.executable, "-c", TWO_PASSES], env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("pass 0")[1].split("pass 1")
    built = [line for line in second.splitlines() if "cache_miss" in line and ",rnn," in line]
    uses_onednn = ",rnn," in first  # not on every processor
    assert bool(built) == (uses_onednn and not setting)
