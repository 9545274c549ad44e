"""examples/c51_cartpole_reference.py, run as a smoke command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_runs import run_reference_script


def test_script_trains_evaluates_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run_reference_script("c51_cartpole_reference.py", tmp_path, monkeypatch, capsys)
    assert "C51('CartPole-v1', seed=3" in printed and "over 20 episodes" in printed
    assert str(tmp_path / "c51-CartPole-v1-seed3") in printed
    assert (tmp_path / "c51-CartPole-v1-seed3" / "config.yaml").is_file()
