"""Small checkpoints, and tools to damage and forge them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.errors import CheckpointError
from rl_training.storage import checkpoint_format, durable_files
from rl_training.storage.checkpoints import checkpoint_path, load_checkpoint, save_checkpoint
from waiting import DEADLINE_SECONDS

SOURCE = Path(durable_files.__file__).parent


def small_state(step: int) -> dict[str, Any]:
    return {"weights": np.full(64, step, np.float32), "counters": {"env_steps": step}}


def save(run: Path, step: int, kind: str = "resume", **options: Any) -> Path:
    return save_checkpoint(
        checkpoint_path(run, kind, step),
        algorithm="ppo",
        config={"algo": "ppo", "seed": 3},
        state=options.pop("state", small_state(step)),
        env_steps=step,
        number=step // 10,
        kind=kind,
        **options,
    )


def edit_manifest(directory: Path, **fields: Any) -> None:
    """Change fields and compute the checksum again, as a hostile author would."""
    path = directory / "manifest.json"
    manifest = {**json.loads(path.read_text()), **fields}
    manifest["checksum"] = checkpoint_format._manifest_checksum(manifest)
    path.write_text(json.dumps(manifest))


def sign_again(directory: Path) -> None:
    edit_manifest(
        directory,
        files={name: durable_files.file_record(directory / name) for name in checkpoint_format.FILES},
    )


def refusal(directory: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert str(directory) in message
    return message


def run_python(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(SOURCE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
