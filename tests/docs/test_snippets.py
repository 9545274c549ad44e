"""What the docs show works: Python runs, configs load, commands take the options that they are given."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from rl_training import load_config
from rl_training.api import algorithms
from rl_training.command_line.app import app
from rl_training.config.algorithm_table import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
# The README's own program is run by tests/test_reference_script.py.
PAGES = sorted((ROOT / "docs").glob("*.md"))
PAGES_WITH_COMMANDS = [ROOT / "README.md", *PAGES, ROOT / "src" / "rl_training" / "assets" / "zoo" / "README.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def cases(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, language))
    ]


def commands(page: Path) -> list[str]:
    """Indented lines that call the command line, without their comments. A line may continue after a backslash."""
    text = re.sub(r"\\\n *", "", page.read_text(encoding="utf-8"))
    lines = re.findall(r"^ {4}(rl-training .*)$", text, re.MULTILINE)
    parts = [part for line in lines for part in line.partition("  #")[0].partition(" # ")[0].split("&&")]
    return [part.strip().removesuffix("&").strip() for part in parts]


@pytest.mark.parametrize("program", cases("python"))
def test_python_of_the_docs_runs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copy(ROOT / "examples" / "own_algorithm.py", "my_algorithm.py")  # docs/own-algorithm.md shows it
    known = set(ALGORITHMS)
    try:
        run_program(program)
    finally:
        sys.modules.pop("my_algorithm", None)
        for name in set(ALGORITHMS) - known:  # of a page that registers one: other tests must not see it
            del ALGORITHMS[name]
            algorithms._CLASSES.pop(name, None)


def test_the_algorithm_of_the_page_is_that_of_the_example() -> None:
    program, _ = blocks(ROOT / "docs" / "own-algorithm.md", "python")
    example = (ROOT / "examples" / "own_algorithm.py").read_text(encoding="utf-8")
    assert program.strip() in example


def run_program(program: str) -> None:
    """Run it with budgets of a tenth."""
    exec(compile(re.sub(r"(\d)_000\b", r"\g<1>00", program), "docs", "exec"), {})


@pytest.mark.parametrize("text", cases("yaml"))
def test_yaml_of_the_docs_loads(text: str, tmp_path: Path) -> None:
    if "\nalgo:" not in f"\n{text}":
        text = f"algo: {'dqn' if 'exploration:' in text else 'ppo'}\n{text}"
    if "\nenv_id:" not in f"\n{text}":
        text = f"env_id: CartPole-v1\n{text}"
    (tmp_path / "config.yaml").write_text(text)
    assert load_config(tmp_path / "config.yaml").env_id in text


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_the_docs_exist_and_take_their_options(page: Path) -> None:
    for line in commands(page):
        command, words = typer.main.get_command(app), shlex.split(line)[1:]
        while isinstance(command, TyperGroup):
            assert words and words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        command.make_context(line, words)


def test_the_docs_have_commands_and_programs() -> None:
    assert len(cases("python")) >= 4 and len(cases("yaml")) >= 3
    assert sum(len(commands(page)) for page in PAGES_WITH_COMMANDS) >= 40
