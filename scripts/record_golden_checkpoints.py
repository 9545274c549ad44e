"""Record a small run per kind of state, for the tests that keep every released checkpoint schema readable.

Run `python scripts/record_golden_checkpoints.py` once per schema, at the release that introduces it. Never record a
schema again with later code: the tests show that later versions still read the original files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from rl_training.config.loading import load_config
from rl_training.runtime.workflows import predict, train
from rl_training.storage.checkpoints import SCHEMA, latest_checkpoint
from rl_training.storage.state_tree import state_hash

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "checkpoints"
COMMON = {"total_timesteps": 64, "checkpoint_every": 32, "eval_episodes": 1, "log_every": 16, "keep_checkpoints": 1}
RUNS = {
    "ppo": {
        "env_id": "CartPole-v1",
        "num_envs": 2,
        "model": {"hidden_sizes": [8], "normalize_observations": True},
        "algo_kwargs": {"num_steps": 8, "minibatch_size": 8, "normalize_rewards": True},
    },
    "dqn": {
        "env_id": "CartPole-v1",
        "model": {"hidden_sizes": [8]},
        "algo_kwargs": {"learning_starts": 16, "batch_size": 8, "buffer_size": 100, "prioritized": True, "n_step": 3},
    },
    "sac": {
        "env_id": "Pendulum-v1",
        "model": {"hidden_sizes": [8], "normalize_observations": True},
        "algo_kwargs": {"learning_starts": 16, "batch_size": 8, "buffer_size": 100},
    },
    "recurrent_ppo": {
        "env_id": "CartPole-v1",
        "model": {"hidden_sizes": [8]},
        "algo_kwargs": {"num_steps": 16, "minibatch_size": 16, "memory_size": 4, "sequence_length": 8},
    },
}


def record(algorithm: str) -> None:
    target = FOLDER / f"schema-{SCHEMA}" / algorithm
    if target.exists():
        print(f"{target.name}: already recorded, not changed")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the config stores its output directory, which must not be a path of this machine
        settings = {"algo": algorithm, "run_name": algorithm, "output_dir": "runs", **COMMON, **RUNS[algorithm]}
        run = train(load_config(settings), show=False).run_dir
        for name in ("lock", "metrics.csv"):
            (run / name).unlink(missing_ok=True)
        checkpoint = latest_checkpoint(run)
        width = len(np.atleast_1d(np.asarray(checkpoint.state["spaces"]["observation"]["low"], dtype=float)))
        observations = np.random.default_rng(0).uniform(-1.0, 1.0, (5, width)).astype(np.float32)
        expected = {
            "library_version": checkpoint.library_version,
            "env_steps": checkpoint.env_steps,
            "state_hash": state_hash(checkpoint.state),
            "observations": observations.tolist(),
            "actions": np.asarray(predict(run, observations)).tolist(),
        }
        (run / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(run, target)
    print(f"{target.name}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file())} bytes")


if __name__ == "__main__":
    for each in RUNS:
        record(each)
