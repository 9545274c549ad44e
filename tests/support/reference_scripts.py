"""One test of a reference script, for the file of each algorithm."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_training.config.algorithm_table import get_algorithm
from rl_training.config.loading import load_config
from tiny_runs import ROOT

EXAMPLES = ROOT / "examples"


def run_script(script: str, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example as `python examples/<script>` does, in this process."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [script, *options])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")


def script_test(algorithm: str, preset: str) -> Callable[..., None]:
    """A test that the script trains its preset, evaluates the agent, and prints the score and the run directory."""

    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        config = load_config(f"{algorithm}/{preset}")
        settings = config.algo_kwargs
        # The few steps that the preset needs to begin learning.
        steps = getattr(settings, "learning_starts", 0) + 4 * getattr(settings, "train_frequency", 64)
        options = ["--total-timesteps", str(steps), "--seed", "3", "--output-dir", str(tmp_path)]
        run_script(f"{algorithm}_{preset}_reference.py", options, monkeypatch)
        score, directory = capsys.readouterr().out.splitlines()
        assert score.startswith(f"{get_algorithm(algorithm).class_name}('{config.env_id}', seed=3, env_steps=")
        assert score.endswith("over 20 episodes")
        run = tmp_path / f"{algorithm}-{config.env_id}-seed3"
        assert directory == f"run directory: {run}"
        assert load_config(run / "config.yaml").total_timesteps == steps

    return test
