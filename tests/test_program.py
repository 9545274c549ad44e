"""Hints name commands that exist in the user's shell, and install lines that work for this installation."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rl_training import program
from rl_training.errors import install_hint

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that is not active: its scripts exist, and the shell does not find them."""
    folder = tmp_path / "my project" / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("rl-training", "python", "pip"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "argv", [str(folder / "rl-training"), "train"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(folder.parents[1])
    return folder


def test_a_program_that_the_shell_does_not_find_is_named_by_its_path(venv: Path) -> None:
    assert program.call("eval", "runs/a b") == ".venv/bin/rl-training eval 'runs/a b'"
    os.chdir(venv)
    assert program.program() == "./rl-training"
    os.chdir(venv.parents[2])
    assert program.program() == "'my project/.venv/bin/rl-training'"
    (venv / "other").mkdir()
    os.chdir(venv / "other")
    assert shlex.split(program.program()) == [str(venv / "rl-training")]


def test_a_program_in_the_path_is_named_by_its_name(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(venv))
    assert program.program() == "rl-training" and program.pip() == "pip"


def test_another_program_of_that_name_in_the_path_does_not_count(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rl-training", "python", "pip"):
        shutil.copy(venv / name, tmp_path / name)
    assert program.program() == ".venv/bin/rl-training"
    assert program.pip() == ".venv/bin/python -m pip"
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    assert program.program() == ".venv/bin/rl-training"


def test_interpreters_that_link_to_the_same_file_are_different_environments(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(venv / "python")
    (venv / "rl-training").unlink()
    assert program.program() == ".venv/bin/python -m rl_training"


def test_a_program_started_as_a_module_is_called_as_one(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path(program.__file__).with_name("__main__.py"))])
    assert program.program() == ".venv/bin/python -m rl_training"
    monkeypatch.setenv("PATH", str(venv))
    assert program.program() == "rl-training"


def test_the_install_line_of_a_checkout_is_editable_and_of_a_wheel_names_the_package(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(venv))
    checkout = tmp_path / "checkout"
    module = checkout / "src" / "rl_training" / "program.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(program, "__file__", str(module))
    assert install_hint("plots") == 'install the extra `plots` (pip install "rl_training[plots]")'
    (checkout / "pyproject.toml").touch()
    assert install_hint("plots") == f'install the extra `plots` (pip install -e "{checkout}[plots]")'
    monkeypatch.chdir(checkout)
    assert install_hint("plots") == 'install the extra `plots` (pip install -e ".[plots]")'


def test_hints_of_a_real_run_can_be_copied_into_the_shell(tmp_path: Path) -> None:
    """As after `make demo`: the command is called by its path, and PATH does not contain it."""
    environment = {**os.environ, "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
    train = [str(BIN / "rl-training"), "train", "ppo/cartpole", "--total-timesteps", "256", "--quiet"]
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    trained = subprocess.run([*train, "--set", "eval_episodes=1"], check=True, **options)
    hints = [line.split(maxsplit=1) for line in trained.stdout.splitlines() if "rl-training eval" in line]
    assert len(hints) == 1 and hints[0][0] == "evaluate"
    shown = subprocess.run(hints[0][1], shell=True, check=True, **options)
    assert "mean return" in shown.stdout


def test_no_text_of_the_library_assumes_that_the_program_is_found() -> None:
    """Docstrings and comments may say `rl-training`; a string that is shown to a user asks `program.call`."""
    found = []
    for path in sorted((ROOT / "src" / "rl_training").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        found += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if "rl-training " in node.value
        ]
    # A page of the zoo is read on other machines.
    assert [place for place in found if not place.startswith(("report.py:", "clock_page.py:"))] == []
