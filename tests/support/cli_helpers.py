"""Call the command line in the test process; tiny runs for every algorithm."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from rl_training.cli import main
from rl_training.experiment.registry import get_config_class, get_spec
from waiting import DEADLINE_SECONDS, wait_until

SMALL_SETTINGS = {
    "num_steps": 32,
    "minibatch_size": 32,
    "update_epochs": 1,
    "learning_starts": 20,
    "batch_size": 8,
    "buffer_size": 500,
    "memory_size": 8,
    "sequence_length": 8,
    "burn_in": 2,
}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The single line of stdout, parsed."""
        lines = self.out.splitlines()
        assert len(lines) == 1, f"{len(lines)} lines on stdout, stderr: {self.err}"
        return json.loads(lines[0])


def call(*arguments: object, stdin: str | None = None) -> Outcome:
    """Run a command in this process, without importing torch again."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.stdin", io.StringIO(stdin or "")),
    ):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def start_process(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    command = [sys.executable, "-m", "rl_training", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, **options)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until `condition` holds, as long as the process runs."""

    def check() -> None:
        assert process.poll() is None, f"the process ended too soon: {process.communicate()}"

    wait_until(condition, seconds, check)


def tiny_config(algorithm: str, **changes: Any) -> dict[str, Any]:
    """A run of well under a second, on an env that the algorithm supports."""
    known = get_config_class(algorithm).model_fields
    discrete = "discrete" in get_spec(algorithm).actions
    return {
        "algo": algorithm,
        "env_id": "CartPole-v1" if discrete else "Pendulum-v1",
        "env_kwargs": {} if discrete else {"max_episode_steps": 25},
        "total_timesteps": 96,
        "eval_episodes": 2,
        "model": {"hidden_sizes": [8]},
        "algo_kwargs": {name: value for name, value in SMALL_SETTINGS.items() if name in known},
        **changes,
    }


def write_config(path: Path, settings: dict[str, Any]) -> Path:
    """JSON is YAML too."""
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


Trainer = Callable[[str], tuple[Path, Outcome]]


def make_trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A function that trains a tiny run, once per algorithm, and returns its output directory and output."""

    @cache
    def train(algorithm: str) -> tuple[Path, Outcome]:
        folder = tmp_path_factory.mktemp(algorithm)
        config = write_config(folder / "tiny.yaml", tiny_config(algorithm))
        return folder / "runs", call("train", config, "--output-dir", folder / "runs", "--json", "--quiet")

    return train
