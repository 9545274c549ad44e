"""The Atari examples, run as smoke commands with tiny budgets."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from rl_training.config.loading import load_config
from tiny_runs import ROOT


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_script_trains_evaluates_and_says_so(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"{algorithm}_breakout_atari_reference.py"
    steps = "64" if algorithm == "dqn" else "256"
    monkeypatch.setattr(sys, "argv", [script, "--total-timesteps", steps, "--seed", "3", "--output-dir", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    printed = capsys.readouterr().out
    assert f"{algorithm.upper()}('ALE/Breakout-v5', seed=3, env_steps={steps}): raw score" in printed
    run = tmp_path / f"{algorithm}-ALE-Breakout-v5-seed3"
    assert str(run) in printed
    assert load_config(run / "config.yaml").model.encoder == "nature"


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
@pytest.mark.parametrize("game", ["breakout", "pong"])
def test_presets_name_their_protocol_and_keep_the_score_raw(algorithm: str, game: str) -> None:
    text = (ROOT / "configs" / algorithm / f"{game}_atari.yaml").read_text(encoding="utf-8")
    assert text.startswith("#") and "reward_clip: 1.0" in text
    config = load_config(f"{algorithm}/{game}_atari")
    assert config.env_id == f"ALE/{game.title()}-v5"
    atari = config.env_kwargs["atari"]
    assert isinstance(atari, dict) and {"sticky_actions", "noop_max", "frame_skip", "stack"} <= atari.keys()
    assert config.algo_kwargs.reward_clip == 1.0
    assert atari.get("episodic_life", False) == (game == "breakout")
