"""Recorded runs of every released schema, and the check of each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from rl_training.runtime.workflows import predict, resume
from rl_training.storage.checkpoints import latest_checkpoint
from rl_training.storage.state_tree import state_hash

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "checkpoints"
RUNS = sorted(path for schema in FOLDER.glob("schema-*") for path in schema.iterdir())
NAMES = [f"{run.parent.name}-{run.name}" for run in RUNS]


def check_golden(run: Path, workplace: Path) -> None:
    """The run is valid, has its recorded values, acts as recorded, and continues training."""
    expected = json.loads((run / "expected.json").read_text())
    checkpoint = latest_checkpoint(run)
    assert checkpoint.skipped == []
    assert f"schema-{checkpoint.schema}" == run.parent.name
    assert checkpoint.env_steps == expected["env_steps"]
    assert state_hash(checkpoint.state) == expected["state_hash"]
    actions = predict(run, np.array(expected["observations"], np.float32))
    # Box actions may differ in the last digit with another version of a library.
    np.testing.assert_allclose(actions, expected["actions"], rtol=1e-4, atol=1e-5)
    copy = workplace / f"{run.parent.name}-{run.name}"
    shutil.copytree(run, copy)
    again = resume(copy, total_timesteps=2 * checkpoint.env_steps, show=False)
    assert again.env_steps == 2 * checkpoint.env_steps
