"""examples/recurrent_ppo_cartpole_masked_reference.py, run as a smoke command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_runs import run_reference_script


def test_script_trains_evaluates_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run_reference_script("recurrent_ppo_cartpole_masked_reference.py", tmp_path, monkeypatch, capsys)
    assert "RecurrentPPO('CartPole-v1', seed=3" in printed and "over 20 episodes" in printed
    run = tmp_path / "recurrent_ppo-CartPole-v1-seed3"
    assert str(run) in printed and "mask_velocity: true" in (run / "config.yaml").read_text()
