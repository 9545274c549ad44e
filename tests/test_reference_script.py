"""The examples as a whole: one per algorithm, each a program of its own, and the quick start."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from reference_scripts import EXAMPLES, run_script
from rl_training.config.loading import list_presets
from tiny_runs import ROOT

SCRIPTS = sorted(path.name for path in (ROOT / "examples").glob("*_reference.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_names_a_preset_that_exists(script: str) -> None:
    preset = re.search(r'main\("(\w+/\w+)"', (EXAMPLES / script).read_text(encoding="utf-8"))
    assert preset is not None and preset[1] in list_presets()
    assert script == f"{preset[1].replace('/', '_')}_reference.py"


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_explains_its_options(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_script(script, ["--help"], monkeypatch)
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--total-timesteps", "--seed", "--output-dir"))


def test_example_runs_as_a_program_from_any_directory(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "a2c_cartpole_reference.py"), "--total-timesteps", "200"]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("A2C('CartPole-v1', seed=0")
    assert (tmp_path / "runs" / "a2c-CartPole-v1-seed0" / "metrics.jsonl").is_file()


def test_quick_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"))["main"](total_timesteps=300)
    evaluated, answer = capsys.readouterr().out.splitlines()
    assert float(evaluated) > 0 and answer.startswith("the loaded agent pushes")
    assert (tmp_path / "cartpole-agent" / "manifest.json").is_file()


def test_readme_example_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program = text.partition("```python\n")[2].partition("```")[0]
    assert "learn(50_000)" in program
    (tmp_path / "readme.py").write_text(program.replace("learn(50_000)", "learn(1_100)"))
    runpy.run_path("readme.py")
    assert float(capsys.readouterr().out) > 0
