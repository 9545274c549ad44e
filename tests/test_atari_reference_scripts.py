"""The Atari examples, run as smoke commands with tiny budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_scripts import run_script
from rl_training.config.loading import load_config
from tiny_runs import ROOT


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_script_trains_evaluates_and_says_so(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = "64" if algorithm == "dqn" else "256"
    options = ["--total-timesteps", steps, "--seed", "3", "--output-dir", str(tmp_path)]
    run_script(f"{algorithm}_breakout_atari_reference.py", options, monkeypatch)
    score, directory = capsys.readouterr().out.splitlines()
    assert score.startswith(f"{algorithm.upper()}('ALE/Breakout-v5', seed=3, env_steps={steps}): ")
    assert score.endswith("over 3 episodes")
    run = tmp_path / f"{algorithm}-ALE-Breakout-v5-seed3"
    assert directory == f"run directory: {run}"
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
